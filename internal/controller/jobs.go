package controller

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// JobForceCommit asks every consuming segment of a table to end where it is.
const JobForceCommit = "forceCommit"

// Arguments of jobs.
const argTable = "table" // the table's id

// Counts of a force commit.
const (
	askedBelow = "askedBelow" // every partition below this number has been asked
	askedSoFar = "asked"      // segments that were asked to end
)

// endsPerBatch bounds one batch of requests to end: with the longest names and errors
// that is what one request to ZooKeeper holds.
const endsPerBatch = 50

type jobID = uuid.UUID

// jobWork is a job that is not over.
type jobWork struct {
	busy bool // a change is being written
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// reviewJob takes up a job that runs, and drops one that is over.
func (m *Machine) reviewJob(j *meta.Job) {
	if j.State != meta.JobRunning {
		delete(m.jobs, j.ID)
		return
	}
	if m.jobs[j.ID] == nil {
		m.jobs[j.ID] = &jobWork{}
	}
	m.workJob(j.ID)
}

// workJobs takes the next step of every job. A job is level-triggered: each
// step begins from what the image says, so any crash in between resumes.
func (m *Machine) workJobs() {
	for _, id := range slices.SortedFunc(maps.Keys(m.jobs), compareIDs) {
		m.workJob(id)
	}
}

func (m *Machine) workJob(id jobID) {
	w, j := m.jobs[id], m.image.Job(id)
	switch {
	case w == nil || w.busy:
	case j == nil || j.State != meta.JobRunning:
		delete(m.jobs, id)
	case j.Kind == JobForceCommit:
		m.forceCommit(j)
	default:
		m.writeJob(j, "job of a kind that is not known", meta.JobProgress(id, meta.JobFailed, j.Counts))
	}
}

// forceCommit asks the segments that were consuming when the job was made to
// end, a batch of partitions at a time, and waits for those it asked.
func (m *Machine) forceCommit(j *meta.Job) {
	table, _ := uuid.Parse(j.Args[argTable])
	t := m.image.Table(table)
	if t == nil {
		m.writeJob(j, "force commit of a table that is gone", meta.JobProgress(j.ID, meta.JobFailed, j.Counts))
		return
	}
	switch ask, below := nextToEnd(m.image, j, table); {
	case below > j.Counts[askedBelow]:
		m.writeJob(j, fmt.Sprintf("end of %d segments of %s", len(ask), t.Name), askToEnd(j.ID, table))
	case !isEnding(m.image, j, table):
		m.writeJob(j, "force commit is done", meta.JobProgress(j.ID, meta.JobDone, j.Counts))
	}
}

// nextToEnd lists the partitions whose segments a force commit asks next, and the
// number below which all have been asked then.
func nextToEnd(im *meta.Image, j *meta.Job, table tableID) (ask []int32, below int64) {
	below = j.Counts[askedBelow]
	for p := range im.Partitions(table) {
		if int64(p.Partition) < below {
			continue
		}
		if len(ask) == endsPerBatch {
			break
		}
		if s := im.InProgress(p.PartitionKey()); s != nil && s.Times.Created <= j.Created {
			ask = append(ask, p.Partition)
		}
		below = int64(p.Partition) + 1
	}
	return ask, below
}

// askToEnd asks the next batch and notes in the same change how far that goes:
// each segment is asked once. Without the note one that goes on because it has no
// rows would be asked again for ever.
func askToEnd(id jobID, table tableID) meta.Func {
	return func(im *meta.Image, now int64) (meta.Change, error) {
		j := im.Job(id)
		if j == nil || j.State != meta.JobRunning {
			return meta.Change{}, nil
		}
		ask, below := nextToEnd(im, j, table)
		counts := map[string]int64{askedBelow: below, askedSoFar: j.Counts[askedSoFar] + int64(len(ask))}
		steps := []meta.Func{meta.JobProgress(id, meta.JobRunning, counts)}
		if len(ask) > 0 {
			steps = append(steps, meta.RequestEnd(table, ask, meta.EndForceCommit, id))
		}
		return together(steps)(im, now)
	}
}

// isEnding reports whether a segment that was consuming when the job was made has
// still to answer a request to end, this job's or an earlier one.
func isEnding(im *meta.Image, j *meta.Job, table tableID) bool {
	for p := range im.Partitions(table) {
		if s := im.InProgress(p.PartitionKey()); s != nil && s.EndRequested != nil && s.Times.Created <= j.Created {
			return true
		}
	}
	return false
}

func (m *Machine) writeJob(j *meta.Job, what string, fn meta.Func) {
	m.jobs[j.ID].busy = true
	m.write(effect{purpose: forJob, id: j.ID}, what, fn)
}

// jobWrote goes on with the job at once, or at the next Tick if the step failed.
func (m *Machine) jobWrote(e effect, ev Wrote) {
	j := m.jobs[e.id]
	if j == nil {
		return
	}
	j.busy = false
	if ev.Err == nil {
		m.workJob(e.id)
	}
}

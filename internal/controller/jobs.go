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

// endsPerBatch bounds one batch of requests to end.
const endsPerBatch = 200

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

func (m *Machine) workJob(id uuid.UUID) {
	w, j := m.jobs[id], m.image.Job(id)
	if w == nil || w.busy {
		return
	}
	if j == nil || j.State != meta.JobRunning {
		delete(m.jobs, id)
		return
	}
	switch j.Kind {
	case JobForceCommit:
		m.forceCommit(j)
	default:
		m.writeJob(j, "unknown job", meta.JobProgress(id, meta.JobFailed, j.Counts))
	}
}

// forceCommit asks the segments that were consuming when the job was made to
// end, a batch at a time, until none of them is left. A segment that ended
// meanwhile has done what was asked.
func (m *Machine) forceCommit(j *meta.Job) {
	table, err := uuid.Parse(j.Args[argTable])
	t := m.image.Table(table)
	if err != nil || t == nil {
		m.writeJob(j, "force commit of a table that is gone", meta.JobProgress(j.ID, meta.JobFailed, j.Counts))
		return
	}
	var ask []int32
	var waiting int64
	for p := range m.image.Partitions(table) {
		s := m.image.InProgress(p.PartitionKey())
		switch {
		case s == nil || s.Times.Created > j.Created:
		case s.EndRequested == nil && j.Counts[askedAll] == 0:
			if len(ask) < endsPerBatch {
				ask = append(ask, p.Partition)
			}
			waiting++
		case s.EndRequested != nil && s.EndRequested.Job == j.ID:
			waiting++
		}
	}
	switch {
	case len(ask) > 0:
		m.writeJob(j, fmt.Sprintf("end of %d segments of %s", len(ask), t.Name),
			meta.RequestEnd(table, ask, meta.EndForceCommit, j.ID))
	case j.Counts[askedAll] == 0:
		// From here on a segment without the request has answered it: without
		// this mark, one that goes on because it has no rows would be asked
		// again for ever.
		m.writeJob(j, "force commit under way", meta.JobProgress(j.ID, meta.JobRunning, map[string]int64{askedAll: 1, waitingFor: waiting}))
	case waiting == 0:
		m.writeJob(j, "force commit is done", meta.JobProgress(j.ID, meta.JobDone, map[string]int64{askedAll: 1, waitingFor: 0}))
	}
}

// Counts of a force commit.
const (
	askedAll   = "askedAll"   // 1 once every segment has been asked
	waitingFor = "waitingFor" // segments that have not ended, when last counted
)

func (m *Machine) writeJob(j *meta.Job, what string, fn meta.Func) {
	m.jobs[j.ID].busy = true
	m.write(writing{purpose: forJob, id: j.ID}, what, fn)
}

// jobWrote goes on with the job at once, or at the next Tick if the step failed.
func (m *Machine) jobWrote(w writing, ev Wrote) {
	j := m.jobs[w.id]
	if j == nil {
		return
	}
	j.busy = false
	if ev.Err == nil {
		m.workJob(w.id)
	}
}

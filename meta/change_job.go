package meta

import (
	"maps"

	"github.com/google/uuid"
)

// CreateJob records a job as RUNNING.
func CreateJob(id uuid.UUID, kind string, args map[string]string) Func {
	return func(im *Image, now int64) (Change, error) {
		if im.Job(id) != nil {
			return Change{}, nil
		}
		return sized(&Job{ID: id, Kind: kind, Args: maps.Clone(args), State: JobRunning, Created: now})
	}
}

// JobProgress records how far a job is. One that is over stays as it is.
func JobProgress(id uuid.UUID, state JobState, counts map[string]int64) Func {
	return func(im *Image, now int64) (Change, error) {
		j := im.Job(id)
		switch {
		case j == nil:
			return refuse(CodeUnknownJob, "no job %s", id)
		case j.State != JobRunning, j.State == state && maps.Equal(j.Counts, counts):
			return Change{}, nil
		}
		j = j.Clone()
		j.State, j.Counts = state, maps.Clone(counts)
		return sized(j)
	}
}

package meta

import "github.com/google/uuid"

// FormatVersion is the version of the records that this build writes.
const FormatVersion = 1

// NewCluster founds the cluster; it is the first change of a log.
func NewCluster(id uuid.UUID) Func {
	return func(im *Image, now int64) (Change, error) {
		if c := im.Cluster(); c != nil {
			if c.ID == id {
				return Change{}, nil
			}
			return refuse(CodeClusterExists, "this is already cluster %s", c.ID)
		}
		return upserts(&Cluster{ID: id, FormatVersion: FormatVersion})
	}
}

// NewLeader opens an epoch; it is the first change of a leader, and its batch
// has the same epoch and term.
func NewLeader(l Leader) Func {
	return func(im *Image, now int64) (Change, error) {
		if l.Epoch <= im.leaderEpoch() {
			return refuse(CodeStaleEpoch, "epoch %d is not after epoch %d", l.Epoch, im.leaderEpoch())
		}
		return upserts(l.Clone())
	}
}

// leaderEpoch is the epoch of the leader that the image is being changed by.
func (im *Image) leaderEpoch() int64 {
	if im.leader != nil {
		return im.leader.Epoch
	}
	return im.epoch
}

package controller

import (
	"net/http"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// Snapshots of the metadata: every controller serves those that it has, whoever leads, as
// the bytes of an id are the same everywhere.

// newShared is what the keepers of this process have in common.
func (c *Controller) newShared() snapshots.Shared {
	return snapshots.Shared{
		Logger: c.root, Logs: c.logs, Metrics: snapshots.NewMetrics(c.reg), Sends: peerdl.NewMetrics(c.reg),
		Client:   &httpx.Client{Token: c.cfg.ClusterToken, HTTP: &http.Client{Transport: peerdl.NewTransport()}},
		Standing: c.snapshotStanding,
	}
}

// snapshotStanding is who leads, as far as this controller knows. An epoch that it has
// only read of in its log is one too.
func (c *Controller) snapshotStanding() (st metalog.Standing, down bool) {
	if l, err := c.leading(); err == nil {
		return l.server.Standing()
	}
	if c.member == nil {
		return metalog.Standing{}, true
	}
	im := c.member.image()
	if cluster := im.Cluster(); cluster != nil {
		st.Cluster = cluster.ID
	}
	st.Epoch, st.URL = im.Epoch(), c.member.leaderURL()
	return st, false
}

// snapshots serves those of the log that is open here.
func (c *Controller) snapshots(w http.ResponseWriter, r *http.Request) {
	k := c.keeper.Load()
	if k == nil {
		httpx.WriteError(w, httpx.Errorf(http.StatusServiceUnavailable, metalog.CodeNotAvailable, "the log of this controller is not open at the moment"))
		return
	}
	k.ServeHTTP(w, r)
}

// askSnapshot has the leader put a request for a snapshot into the log, where every
// controller and every node finds it. The answer is the id that they all make.
func (c *Controller) askSnapshot(w http.ResponseWriter, r *http.Request) error {
	res, err := c.submit(r.Context(), meta.SnapshotHere)
	if err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusAccepted, api.SnapshotAsked{EndOffset: res.Image.Next(), Epoch: res.Image.Epoch()})
}

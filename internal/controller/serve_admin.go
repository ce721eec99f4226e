package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

// What operators change: each request flips one state, and is answered when that is
// written. The steps that follow from it the machine takes (bulk.go).

// adminRoutes are those of the changes.
func (c *Controller) adminRoutes(r chi.Router) {
	r.Put("/tables/{table}", c.answer(c.updateTable))
	r.Delete("/tables/{table}", c.answer(c.deleteTable))
	r.Post("/tables/{table}/pauseConsumption", c.answer(c.pauseConsumption))
	r.Post("/tables/{table}/resumeConsumption", c.answer(c.resumeConsumption, "consumeFrom"))
	r.Post("/nodes/{node}/drain", c.answer(c.drainNode))
	r.Post("/nodes/{node}/undrain", c.answer(c.undrainNode))
	r.Delete("/nodes/{node}", c.answer(c.removeNode))
}

// changeTable makes a change of the table of the path, and answers with the table.
func (c *Controller) changeTable(w http.ResponseWriter, r *http.Request, status int, what string, change func(t *meta.Table) meta.Func) error {
	_, t, err := c.table(r)
	if err != nil {
		return err
	}
	res, err := c.submit(r.Context(), change(t))
	if err != nil {
		return err
	}
	c.log.Info().Str("table", t.Name).Int64("offset", res.Offset).Msg(what)
	if now := res.Image.Table(t.ID); now != nil {
		t = now
	}
	return httpx.WriteJSON(w, status, tableView(res.Image, t))
}

// updateTable gives a table another configuration. The versions that no segment
// needs any more go with it.
func (c *Controller) updateTable(w http.ResponseWriter, r *http.Request) error {
	cfg, err := c.readConfig(r)
	if err != nil {
		return err
	}
	return c.changeTable(w, r, http.StatusOK, "table updated", func(t *meta.Table) meta.Func {
		return func(im *meta.Image, now int64) (meta.Change, error) {
			update, err := meta.UpdateTableConfig(t.ID, cfg)(im, now)
			if err != nil {
				return meta.Change{}, err
			}
			prune, err := meta.PruneTableConfigs(t.ID)(im, now) // leaves the version that was current until now
			if err != nil {
				return meta.Change{}, err
			}
			return meta.Change{Upserts: update.Upserts, Removals: prune.Removals}, nil
		}
	})
}

func (c *Controller) deleteTable(w http.ResponseWriter, r *http.Request) error {
	return c.changeTable(w, r, http.StatusAccepted, "table is being deleted", func(t *meta.Table) meta.Func {
		return meta.DeleteTable(t.ID)
	})
}

func (c *Controller) pauseConsumption(w http.ResponseWriter, r *http.Request) error {
	in := api.Pause{}
	body, err := httpx.ReadBody(r, maxBody)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			return httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest, "the body is not the JSON expected: by is a text").With(err)
		}
	}
	if in.By == "" {
		in.By = "api"
	}
	return c.changeTable(w, r, http.StatusAccepted, "table paused", func(t *meta.Table) meta.Func {
		return meta.PauseTable(t.ID, meta.Pause{Reason: meta.PauseAdministrative, By: in.By})
	})
}

// placesToResume are what consumeFrom may say.
var placesToResume = map[string]meta.ConsumeFrom{
	"": meta.FromLastConsumed, "lastConsumed": meta.FromLastConsumed, "smallest": meta.FromSmallest, "largest": meta.FromLargest,
}

func (c *Controller) resumeConsumption(w http.ResponseWriter, r *http.Request) error {
	from, ok := placesToResume[r.URL.Query().Get("consumeFrom")]
	if !ok {
		return httpx.Errorf(http.StatusBadRequest, api.CodeInvalidRequest,
			"consumeFrom is %q, not lastConsumed, smallest or largest", httpx.OneLine(r.URL.Query().Get("consumeFrom")))
	}
	return c.changeTable(w, r, http.StatusAccepted, "table resumed", func(t *meta.Table) meta.Func {
		return meta.ResumeTable(t.ID, from)
	})
}

// node finds the node of a path, and what is known of it.
func (c *Controller) node(r *http.Request) (*meta.Node, NodeSeen, error) {
	im, err := c.image()
	if err != nil {
		return nil, NodeSeen{}, err
	}
	id := chi.URLParam(r, "node")
	n := im.Node(id)
	if n == nil {
		return nil, NodeSeen{}, httpx.Errorf(http.StatusNotFound, api.CodeNodeNotFound, "no node %q is registered", httpx.OneLine(id))
	}
	seen, err := c.shell.look(r.Context())
	if err != nil {
		return nil, NodeSeen{}, err
	}
	return n, seen[id], nil
}

// mayBeAlive reports whether the node was not silent for as long as it takes to be
// taken for DOWN. A leader that has just begun has heard of nobody: it gives each node
// the whole time first.
func (s NodeSeen) mayBeAlive(now time.Time) bool {
	return s.HeardAt == 0 || now.UnixMilli()-s.HeardAt <= heartbeatTimeout.Milliseconds()
}

func (c *Controller) drainNode(w http.ResponseWriter, r *http.Request) error {
	n, seen, err := c.node(r)
	if err != nil {
		return err
	}
	return c.changeNode(r.Context(), w, n.ID, seen, "node is drained", meta.SetNodeState(n.ID, meta.AnyIncarnation, meta.NodeDraining))
}

func (c *Controller) undrainNode(w http.ResponseWriter, r *http.Request) error {
	n, seen, err := c.node(r)
	if err != nil {
		return err
	}
	return c.changeNode(r.Context(), w, n.ID, seen, "node is drained no longer", meta.UndrainNode(n.ID, seen.mayBeAlive(time.Now())))
}

// changeNode makes a change of a node, and answers with the node.
func (c *Controller) changeNode(ctx context.Context, w http.ResponseWriter, id string, seen NodeSeen, what string, fn meta.Func) error {
	res, err := c.submit(ctx, fn)
	if err != nil {
		return err
	}
	c.log.Info().Str("node", id).Int64("offset", res.Offset).Msg(what)
	n := res.Image.Node(id)
	if n == nil {
		return httpx.Errorf(http.StatusNotFound, api.CodeNodeNotFound, "no node %q is registered", id)
	}
	return httpx.WriteJSON(w, http.StatusAccepted, nodeView(res.Image, n, seen, partitionsOf(res.Image)))
}

// removeNode forgets a node that is gone for good. One that is alive would register
// again at once.
func (c *Controller) removeNode(w http.ResponseWriter, r *http.Request) error {
	n, seen, err := c.node(r)
	if err != nil {
		return err
	}
	if seen.mayBeAlive(time.Now()) {
		return httpx.Errorf(http.StatusConflict, meta.CodeNodeInUse, "node %s was not silent for %s yet: stop it first", n.ID, heartbeatTimeout)
	}
	res, err := c.submit(r.Context(), meta.RemoveNode(n.ID))
	if err != nil {
		return err
	}
	c.log.Info().Str("node", n.ID).Int64("offset", res.Offset).Msg("node removed")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// partitionsOf counts for each node the partitions that name it.
func partitionsOf(im *meta.Image) map[string]int {
	n := map[string]int{}
	for t := range im.Tables() {
		for p := range im.Partitions(t.ID) {
			for _, id := range slices.Compact(slices.Sorted(slices.Values(p.Replicas))) {
				n[id]++
			}
		}
	}
	return n
}

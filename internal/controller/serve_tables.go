package controller

import (
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

func (c *Controller) listTables(w http.ResponseWriter, r *http.Request) error {
	im, err := c.image()
	if err != nil {
		return err
	}
	page, err := httpx.Page(r, im.Tables(), func(t *meta.Table) string { return t.Name })
	if err != nil {
		return err
	}
	out := httpx.List[api.TableView]{Items: []api.TableView{}, Next: page.Next}
	for _, t := range page.Items {
		out.Items = append(out.Items, tableView(im, t))
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}

func (c *Controller) getTable(w http.ResponseWriter, r *http.Request) error {
	im, t, err := c.table(r)
	if err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusOK, tableView(im, t))
}

// readConfig reads a table's configuration and says everything that is wrong
// with it, what this process cannot open included.
func (c *Controller) readConfig(r *http.Request) (*meta.Config, error) {
	body, err := httpx.ReadBody(r, maxBody)
	if err != nil {
		return nil, err
	}
	cfg, err := meta.ParseConfig("table", body)
	if err != nil {
		return nil, err
	}
	var faults config.Faults
	if _, err := c.streams.Source(cfg.Stream); err != nil {
		faults.Addf("stream.path", cfg.Stream.Path, "%v", err)
	}
	if d := cfg.DeepStore; d != nil {
		if err := deepstore.CheckURI(d.URI, c.cfg.DeepStoreRoots); err != nil {
			faults.Addf("deepStore.uri", d.URI, "%v", err)
		}
	}
	return cfg, faults.Err()
}

func (c *Controller) validateTable(w http.ResponseWriter, r *http.Request) error {
	cfg, err := c.readConfig(r)
	if err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusOK, cfg)
}

func (c *Controller) createTable(w http.ResponseWriter, r *http.Request) error {
	cfg, err := c.readConfig(r)
	if err != nil {
		return err
	}
	id := uuid.New()
	res, err := c.submit(r.Context(), meta.CreateTable(cfg, id))
	if err != nil {
		return err
	}
	c.log.Info().Str("table", cfg.Name).Int64("offset", res.Offset).Msg("table created")
	return httpx.WriteJSON(w, http.StatusCreated, tableView(res.Image, res.Image.Table(id)))
}

func (c *Controller) listTablePartitions(w http.ResponseWriter, r *http.Request) error {
	im, t, err := c.table(r)
	if err != nil {
		return err
	}
	page, err := httpx.Page(r, im.Partitions(t.ID), func(p *meta.Partition) string { return fmt.Sprintf("%010d", p.Partition) })
	if err != nil {
		return err
	}
	out := httpx.List[api.PartitionView]{Items: []api.PartitionView{}, Next: page.Next}
	for _, p := range page.Items {
		out.Items = append(out.Items, partitionView(im, t, p))
	}
	return httpx.WriteJSON(w, http.StatusOK, out)
}

// coverage proves which offsets are in committed segments, up to where the
// stream ends now.
func (c *Controller) coverage(w http.ResponseWriter, r *http.Request) error {
	im, t, err := c.table(r)
	if err != nil {
		return err
	}
	var ends map[int32]int64
	cfg := im.CurrentConfig(t.ID)
	ps, err := c.partitions(r.Context(), cfg.Stream)
	if err != nil {
		return httpx.Errorf(http.StatusServiceUnavailable, "STREAM_UNAVAILABLE", "the stream of table %q cannot be read: %v", t.Name, err).With(err)
	}
	ends = streamEnds(ps)
	if im, err = c.image(); err != nil { // newer than the stream's end, so that nothing seems past it
		return err
	}
	return httpx.WriteJSON(w, http.StatusOK, meta.Coverage(im, t.ID, ends))
}

func streamEnds(ps []stream.Partition) map[int32]int64 {
	ends := make(map[int32]int64, len(ps))
	for _, p := range ps {
		ends[p.Partition] = p.End
	}
	return ends
}

// forceCommit makes a job that asks the table's consuming segments to end.
func (c *Controller) forceCommit(w http.ResponseWriter, r *http.Request) error {
	im, t, err := c.table(r)
	if err != nil {
		return err
	}
	segments := 0
	for p := range im.Partitions(t.ID) {
		if im.InProgress(p.PartitionKey()) != nil {
			segments++
		}
	}
	id := uuid.New()
	if _, err := c.submit(r.Context(), meta.CreateJob(id, JobForceCommit, map[string]string{argTable: t.ID.String()})); err != nil {
		return err
	}
	return httpx.WriteJSON(w, http.StatusAccepted, api.ForceCommitted{Job: id, Segments: segments})
}

func (c *Controller) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := parseID(r, "job")
	if err != nil {
		return err
	}
	im, err := c.image()
	if err != nil {
		return err
	}
	j := im.Job(id)
	if j == nil {
		return httpx.Errorf(http.StatusNotFound, api.CodeJobNotFound, "no job %s", id)
	}
	return httpx.WriteJSON(w, http.StatusOK, j)
}

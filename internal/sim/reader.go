package sim

import (
	"errors"
	"os"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// reader is somebody outside the cluster who lists the committed segments and reads
// them from the nodes, as DuckDB with a list of URLs would.
type reader struct {
	process
	c *cluster
}

func newReader(c *cluster, name string) *reader {
	r := &reader{c: c}
	r.process = process{w: c.w, name: name, disk: newDisk(c.w), start: func() {}, stop: func() {}}
	return r
}

// read lists the segments at some controller and reads a block of one.
func (r *reader) read() {
	to := r.c.controllers[r.c.w.rnd.Intn(len(r.c.controllers))]
	call(r.c.net, &r.process, &to.process, "list segments", 5*time.Second,
		func(reply func(answered[*meta.Image])) { to.list(reply) },
		func(a answered[*meta.Image], err error) {
			if err == nil && a.code == "" {
				r.readFrom(a.body)
			}
		})
}

// list answers with the committed image, as GET /segments does.
func (s *simController) list(reply func(answered[*meta.Image])) {
	if !s.believed() {
		reply(refused[*meta.Image](api.CodeNotLeader, s.standing.URL))
		return
	}
	im := s.writer.Image()
	s.c.check.served(s, im)
	reply(answered[*meta.Image]{body: im})
}

func (r *reader) readFrom(im *meta.Image) {
	var done []*meta.Segment
	for s := range im.TableSegments(r.c.table) {
		if s.Status == meta.SegmentDone {
			done = append(done, s)
		}
	}
	if len(done) == 0 {
		return
	}
	s := done[r.c.w.rnd.Intn(len(done))]
	sources := meta.Sources(im, s, meta.PeersFirst, "")
	if len(sources) == 0 || sources[0].Node == "" {
		return
	}
	peer, i := r.c.nodeAt(sources[0].Node), r.c.w.rnd.Intn(blocks(s.SizeBytes))
	type got struct {
		data   []byte
		digest segment.Digest
		err    error
	}
	call(r.c.net, &r.process, &peer.process, "read", 20*time.Second,
		func(reply func(got)) {
			data, err := peer.serveBlock(s, i)
			reply(got{data, s.Digest, err})
		},
		func(g got, err error) {
			if err == nil {
				err = g.err
			}
			switch {
			case err == nil && string(g.data) == string(block(r.c.contents[s.Digest], i)):
				r.c.w.count.outcomes["reader got a block"]++
			case err == nil:
				r.c.w.count.outcomes["reader refused a damaged block"]++ // its digest says so
			case errors.Is(err, os.ErrNotExist):
				r.c.w.count.outcomes["reader found the copy gone"]++
			default:
				r.c.w.count.outcomes["reader got no answer"]++
			}
		})
}

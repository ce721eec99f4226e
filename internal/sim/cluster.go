package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/segment"
)

// cluster is everything there is in one run.
type cluster struct {
	w       *world
	plan    *Plan
	net     *network
	topic   *topic
	objects *objects
	deep    deepstore.Store
	zk      *zookeeper // nil: embedded

	controllers []*simController
	nodes       []*simNode
	reader      *reader
	table       uuid.UUID
	others      []uuid.UUID // tables that are made and deleted, one after the other
	clusterID   uuid.UUID

	// contents are the bytes behind every digest that was ever sealed: what a
	// digest proves.
	contents map[segment.Digest][]byte
	names    map[meta.SegmentKey]string // of every segment that there ever was
	check    *checker
	// logMetrics are those of every log: they are not looked at, and cost something to make.
	logMetrics *metalog.Metrics
	healed     bool // phase 2: no more faults
}

const tableName = "t"

func newCluster(w *world, plan *Plan) *cluster {
	c := &cluster{w: w, plan: plan, logMetrics: metalog.NewMetrics(nil), contents: map[segment.Digest][]byte{}, names: map[meta.SegmentKey]string{}}
	c.net = newNetwork(w, plan.Net)
	c.topic = newTopic(w, plan.Partitions)
	c.objects, c.deep = newObjects(w)
	c.objects.before, c.objects.after = plan.DeepBefore, plan.DeepAfter
	c.check = newChecker(c)
	c.objects.put = c.check.uploaded
	c.clusterID, c.table = c.uuid(), c.uuid()
	if plan.Controllers > 1 {
		c.zk = newZooKeeper(c)
	}
	for i := range plan.Controllers {
		c.controllers = append(c.controllers, newController(c, fmt.Sprintf("c%d", i+1)))
	}
	for range plan.Nodes {
		c.addNode()
	}
	c.reader = newReader(c, "reader")
	return c
}

// addNode makes one more node, which is not started yet.
func (c *cluster) addNode() *simNode {
	i := len(c.nodes)
	n := newNode(c, fmt.Sprintf("n%d", i+1))
	n.zone = string(rune('a' + i%3))
	n.class = 0
	if c.w.chance(c.plan.OtherClass) {
		n.class = 1
	}
	c.nodes = append(c.nodes, n)
	return n
}

// uuid draws an identity.
func (c *cluster) uuid() uuid.UUID {
	var id uuid.UUID
	c.w.rnd.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// boot starts every process.
func (c *cluster) boot() {
	for _, ctl := range c.controllers {
		ctl.boot()
	}
	for _, n := range c.nodes {
		n.boot()
	}
	c.reader.boot()
	c.every(5*time.Second, "somebody reads", c.reader.read)
}

func (c *cluster) controllerAt(url string) *simController {
	for _, ctl := range c.controllers {
		if ctl.url() == url {
			return ctl
		}
	}
	return nil
}

func (c *cluster) nodeAt(id string) *simNode {
	for _, n := range c.nodes {
		if n.name == id {
			return n
		}
	}
	return nil
}

// leader is a controller that leads, as far as it knows, or nil.
func (c *cluster) leader() *simController {
	for _, ctl := range c.controllers {
		if ctl.up && !ctl.stopped() && ctl.leads() {
			return ctl
		}
	}
	return nil
}

// image is the newest committed image that anybody has.
func (c *cluster) image() *meta.Image { return c.check.image }

// content is what the builder of a node of a class makes of rows: every byte
// follows from them, the configuration and the class.
func (c *cluster) content(k meta.SegmentKey, class int, cfg *meta.Config, start, end int64, rows []row) (data []byte, digest segment.RowsDigest) {
	h := segment.RowsHasher{}
	for _, r := range rows {
		h.Write(&segment.Row{Offset: r.offset, Value: []byte{byte(r.bytes)}})
	}
	digest = h.Sum()
	data = fmt.Appendf(nil, "segment %s [%d, %d) of at most %d, class %d, rows %d %s\n", k, start, end, cfg.Segment.MaxRows, class, len(rows), digest)
	for _, r := range rows {
		data = fmt.Appendf(data, "%d %d\n", r.offset, r.bytes)
	}
	return data, digest
}

// blockBytes is the size of a simulated piece: small, so that a segment has several.
const blockBytes = 128

func blocks(size int64) int { return int((size + blockBytes - 1) / blockBytes) }

func block(data []byte, i int) []byte {
	return data[i*blockBytes : min(len(data), (i+1)*blockBytes)]
}

// tableConfig is the configuration of the table, in its n-th version.
func (c *cluster) tableConfig(n int) *meta.Config {
	cfg := meta.DefaultConfig()
	cfg.Name = tableName
	cfg.Stream = meta.StreamConfig{Type: meta.StreamFiles, Path: "t"}
	cfg.Format.Type = segment.FormatRaw
	cfg.Replication = c.plan.Replication
	cfg.Segment.MaxRows = c.plan.MaxRows + int64(n%3)*3
	cfg.Segment.MaxAge = config.Duration(c.plan.MaxAge)
	cfg.Completion.Mode = meta.CompletionBuild
	if c.plan.DownloadMode {
		cfg.Completion.Mode = meta.CompletionDownload
	}
	cfg.Completion.HoldTime = config.Duration(c.plan.Hold)
	cfg.Completion.CommitTimeout = config.Duration(c.plan.CommitTimeout)
	if c.plan.DeepStore {
		cfg.DeepStore = &meta.DeepStoreConfig{URI: deepURI, UploadWait: config.Duration(c.plan.UploadWait)}
	}
	cfg.Download = c.plan.Download
	if c.plan.RetentionAge > 0 {
		cfg.Retention.Age = config.Duration(c.plan.RetentionAge)
	}
	return cfg
}

// every does something again and again, at drawn intervals, until the faults end.
func (c *cluster) every(mean time.Duration, label string, do func()) {
	if mean <= 0 {
		return
	}
	c.w.after(c.w.between(mean/4, 2*mean), label, func() {
		if c.healed {
			return
		}
		do()
		c.every(mean, label, do)
	})
}

const codeNotLeader = api.CodeNotLeader

// edge counts a change of a machine's state.
func (c *cluster) edge(machine, from, to string) {
	if from != to {
		c.w.count.edges[machine+": "+from+" → "+to]++
	}
}

// rebootLater starts a process again after a while.
func (c *cluster) rebootLater(p *process, d time.Duration) {
	life := p.life
	c.w.after(d, p.name+" is started again", func() {
		if !p.up && p.life == life {
			p.boot()
		}
	})
}

// sortedIDs are the keys of a map, in their order.
func sortedIDs[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }

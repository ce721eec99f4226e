package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// zkScript is run through the model of ZooKeeper and through the real one, and both
// must say what it says. Its clients are a and b:
//
//	a opens         a session of its own
//	a stands x      creates an ephemeral sequential candidate
//	b lists         the candidates, in the order of their numbers
//	b watches x     the candidate; is it there
//	b heard x       whether the watch has ended
//	a deletes x     a candidate
//	a head          epoch, offset and version of the head; a remembers them
//	a appends       the batch after the head that it remembers, on that condition
//	a reads 1       the epochs of the batches from that offset on
//	a drops         its connection, and finds its session again on another
//	a dies          its session ends
//	a silent        it is cut off, until its session is over
const zkScript = `
a opens → ok
b opens → ok
a head → epoch 0 offset 0 version 0
b head → epoch 0 offset 0 version 0
a stands x → ok
b stands y → ok
b lists → x y
a lists → x y
b watches x → there
a appends → written
b appends → bad version
b head → epoch 1 offset 0 version 1
b appends → written
a appends → bad version
a head → epoch 2 offset 1 version 2
a reads 0 → 1 2
a reads 1 → 2
a reads 2 → nothing
a drops → same session
a lists → x y
b heard x → no
a stands z → ok
a lists → x y z
a deletes x → ok
b heard x → yes
a deletes x → not there
b lists → y z
b watches x → not there
b watches z → there
b drops → same session
b heard z → yes
b lists → y z
b watches z → there
a silent → over
b lists → y
b heard z → yes
b watches y → there
a opens → ok
a lists → y
a stands x → ok
a lists → y x
b dies → over
a lists → x
a appends → bad version
a head → epoch 2 offset 1 version 2
a appends → written
a head → epoch 3 offset 2 version 3
a reads 0 → 1 2 3
`

// zkUnderTest is one ZooKeeper with its clients. says is what the script says: whoever has
// to wait for it knows for what.
type zkUnderTest interface {
	do(client, verb, arg, says string) string
}

// TestTheModelIsAsTheRealZooKeeper: what the simulator believes of ZooKeeper is worth
// what this test says.
func TestTheModelIsAsTheRealZooKeeper(t *testing.T) {
	for name, zk := range map[string]func(*testing.T) zkUnderTest{
		"model": func(*testing.T) zkUnderTest { return newModelled() },
		"real":  func(t *testing.T) zkUnderTest { return newReal(t) },
	} {
		t.Run(name, func(t *testing.T) {
			under := zk(t)
			for line := range strings.Lines(strings.TrimSpace(zkScript)) {
				said, expected, _ := strings.Cut(strings.TrimSpace(line), " → ")
				w := append(strings.Fields(said), "")
				if got := under.do(w[0], w[1], w[2], expected); got != expected {
					t.Fatalf("%s → %s, and the script says %s", said, got, expected)
				}
			}
		})
	}
}

// nextBatch follows a head and opens an epoch: every append of the script does.
func nextBatch(epoch, next int64, cluster uuid.UUID) *meta.Batch {
	b := &meta.Batch{Offset: next, Epoch: epoch + 1, Term: uuid.NewSHA1(cluster, []byte{byte(epoch)}), Time: 1000 + next}
	if next == 0 {
		b.Upserts = append(b.Upserts, &meta.Cluster{ID: cluster, FormatVersion: meta.FormatVersion})
	}
	b.Upserts = append(b.Upserts, &meta.Leader{Epoch: b.Epoch, Term: b.Term, Controller: "c", URL: "http://c"})
	return b
}

func candidatesOf(names []string) string {
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a[len(a)-10:], b[len(b)-10:]) })
	for i, name := range names {
		names[i] = name[:len(name)-len("_0123456789")]
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " ")
}

func epochsOf(batches []*meta.Batch) string {
	var epochs []string
	for _, b := range batches {
		epochs = append(epochs, fmt.Sprint(b.Epoch))
	}
	if len(epochs) == 0 {
		return "nothing"
	}
	return strings.Join(epochs, " ")
}

func answer(found bool, yes, no string) string {
	if found {
		return yes
	}
	return no
}

// modelled is the model, asked without its network.
type modelled struct {
	c       *cluster
	clients map[string]*modelClient
}

type modelClient struct {
	process
	session int64
	conn    int64
	head    zkmeta.Head
	version int32
	watches map[string]*bool // whether it has ended, by candidate
}

func newModelled() *modelled {
	plan := NewPlan(1)
	plan.Controllers, plan.Nodes, plan.Net = 2, 1, netRates{}
	plan.Faults = nil
	c := newCluster(newWorld(1, &trace{}), plan)
	return &modelled{c: c, clients: map[string]*modelClient{}}
}

// name is the full name of a candidate that is there, or was.
func (m *modelled) name(short string) string {
	for _, c := range m.c.zk.candidates {
		if strings.HasPrefix(c.name, short+"_") {
			return c.name
		}
	}
	return short + "_0000000000"
}

func (m *modelled) do(client, verb, arg, _ string) string {
	z := m.c.zk
	k := m.clients[client]
	if verb == "opens" {
		k = &modelClient{watches: map[string]*bool{}}
		k.process = process{w: m.c.w, name: client, disk: newDisk(m.c.w), start: func() {}, stop: func() {}}
		k.boot()
		k.conn = 1
		k.session = z.connect(0, 1, &k.process, k.life)
		m.clients[client] = k
		return answer(k.session != 0, "ok", "refused")
	}
	// Messages arrive, and whoever is heard of stays.
	m.c.w.run(m.c.w.now+10*time.Millisecond, nil)
	s := z.sessions[k.session]
	s.heard = m.c.w.now
	switch verb {
	case "stands":
		z.create(s, arg+"_")
		return "ok"
	case "lists":
		return candidatesOf(z.list())
	case "watches":
		over := new(bool)
		k.watches[arg] = over
		return answer(z.watch(s, m.name(arg), func() { *over = true }), "there", "not there")
	case "heard":
		return answer(*k.watches[arg], "yes", "no")
	case "deletes":
		there := z.place(m.name(arg)) >= 0
		z.remove(m.name(arg))
		return answer(there, "ok", "not there")
	case "head":
		k.head, k.version = z.head, z.version
		return fmt.Sprintf("epoch %d offset %d version %d", k.head.Epoch, k.head.Offset, k.version)
	case "appends":
		next := k.head.Offset + 1
		if k.head.Epoch == 0 {
			next = 0
		}
		return answer(z.multi(k.version, nextBatch(k.head.Epoch, next, m.c.clusterID)) == zkmeta.Written, "written", "bad version")
	case "reads":
		return epochsOf(z.read(int64(arg[0] - '0')))
	case "drops":
		k.conn++
		// The client is not told of what it watched: it takes a watch for ended.
		for _, over := range k.watches {
			*over = true
		}
		return answer(z.connect(k.session, k.conn, &k.process, k.life) == k.session, "same session", "another session")
	case "dies":
		z.end(s)
		return "over"
	case "silent":
		for until := m.c.w.now + 2*sessionTimeout; z.sessions[k.session] != nil && m.c.w.now < until; {
			for name, other := range m.clients {
				if name != client && z.sessions[other.session] != nil {
					z.sessions[other.session].heard = m.c.w.now
				}
			}
			m.c.w.run(m.c.w.now+zkTick, nil)
		}
		return answer(z.sessions[k.session] == nil, "over", "still there")
	}
	return "what is " + verb + "?"
}

// real is Apache ZooKeeper, asked as a controller does.
type real struct {
	t       *testing.T
	server  *zktest.Server
	cluster uuid.UUID
	names   map[string]string // of candidates, in full
	clients map[string]*realClient
}

type realClient struct {
	proxy   *zktest.Proxy
	conn    *zkmeta.Conn
	head    zkmeta.TailHead
	version int32
	watches map[string]<-chan struct{}
}

func newReal(t *testing.T) *real {
	r := &real{t: t, server: zktest.Start(t, zktest.WithTickTime(patient/20)), cluster: uuid.New(), names: map[string]string{}, clients: map[string]*realClient{}}
	founder := r.connect("founder")
	if err := zkmeta.Found(t.Context(), founder.conn, r.cluster); err != nil {
		t.Fatal(err)
	}
	return r
}

// patient is for sessions that nobody waits for the end of: a call may take a third of
// it. mortal is for the client that is cut off until its session is over.
const patient, mortal = 40 * time.Second, 12 * time.Second

func (r *real) connect(client string) *realClient {
	timeout := patient
	if client == "a" {
		timeout = mortal
	}
	proxy := zktest.NewProxy(r.t, r.server.Addr())
	address, err := zkmeta.ParseAddress("zookeeper://" + proxy.Addr() + "/shoal")
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := zkmeta.Connect(zkmeta.Access{SessionTimeout: timeout}.Conn(address, zerolog.Nop(), nil))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	k := &realClient{proxy: proxy, conn: conn, watches: map[string]<-chan struct{}{}}
	r.clients[client] = k
	k.until(r.t, func(s zkmeta.Session) bool { return s.Connected })
	return k
}

// until waits for the session to be so.
func (k *realClient) until(t *testing.T, so func(zkmeta.Session) bool) zkmeta.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		s, changed := k.conn.Watch()
		if so(s) {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the session stays %+v", s)
		}
	}
}

func (r *real) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *real) do(client, verb, arg, says string) string {
	ctx := r.t.Context()
	k := r.clients[client]
	if verb == "opens" {
		r.connect(client)
		return "ok"
	}
	c := k.conn
	full := cmp.Or(r.names[arg], arg+"_0000000000")
	switch verb {
	case "stands":
		name, err := c.CreateEphemeralSequential(ctx, c.Path("election", arg+"_"))
		r.must(err)
		r.names[arg] = name
		return "ok"
	case "lists":
		names, err := c.Children(ctx, c.Path("election"))
		r.must(err)
		return candidatesOf(names)
	case "watches":
		gone, err := c.Gone(ctx, c.Path("election", full))
		if errors.Is(err, zkmeta.ErrNoNode) {
			return "not there"
		}
		r.must(err)
		k.watches[arg] = gone
		return "there"
	case "heard":
		// A watch is told before the answer to a later request of the same session.
		r.must(c.Sync(ctx, c.Path("election")))
		return r.heard(k.watches[arg], says)
	case "deletes":
		err := c.Delete(ctx, c.Path("election", full), -1)
		if errors.Is(err, zkmeta.ErrNoNode) {
			return "not there"
		}
		r.must(err)
		return "ok"
	case "head":
		head, version, err := zkmeta.CurrentHead(ctx, c)
		r.must(err)
		k.head, k.version = head, version
		return fmt.Sprintf("epoch %d offset %d version %d", head.Head().Epoch, head.Head().Offset, version)
	case "appends":
		return r.append(k)
	case "reads":
		return r.read(k, int64(arg[0]-'0'))
	case "drops":
		before := c.Session()
		k.proxy.Drop()
		after := k.until(r.t, func(s zkmeta.Session) bool { return s.Connected && s.Connection > before.Connection })
		return answer(after.ID == before.ID, "same session", "another session")
	case "dies":
		r.must(c.Close())
		return "over"
	case "silent":
		before := c.Session()
		k.proxy.Stall(zktest.Both)
		r.until(before.ID)
		return "over"
	}
	return "what is " + verb + "?"
}

// heard reports whether a watch has ended. One that has is told by another goroutine
// than the one that answers, so it gets a moment, and all the time that it needs where
// the script says that it has; where there is nothing to come, the moment is enough.
func (r *real) heard(gone <-chan struct{}, says string) string {
	var enough <-chan time.Time
	if says == "no" {
		enough = time.After(200 * time.Millisecond)
	}
	select {
	case <-gone:
		return "yes"
	case <-enough:
		return "no"
	case <-r.t.Context().Done():
		return "not yet"
	}
}

// until waits until no candidate is left of a session.
func (r *real) until(session int64) {
	c := r.clients["founder"].conn
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for left := true; left; {
		names, err := c.Children(ctx, c.Path("election"))
		r.must(err)
		left = false
		for _, name := range names {
			stat, there, err := c.Stat(ctx, c.Path("election", name))
			r.must(err)
			left = left || there && stat.EphemeralOwner == session
		}
	}
}

func (r *real) append(k *realClient) string {
	next := k.head.Next()
	b := nextBatch(k.head.Head().Epoch, next, r.cluster)
	base := meta.Empty()
	for offset := range next {
		var err error
		base, err = base.Apply(nextBatch(offset, offset, r.cluster))
		r.must(err)
	}
	device := zkmeta.NewDevice(zkmeta.DeviceConfig{
		Conn: k.conn, Head: k.head, Version: k.version, Base: func() *meta.Image { return base },
	})
	err := device.Append(r.t.Context(), b)
	switch zkmeta.OutcomeOf(err) {
	case zkmeta.Written:
		return "written"
	case zkmeta.BadVersion:
		return "bad version"
	}
	return err.Error()
}

func (r *real) read(k *realClient, from int64) string {
	head, _, err := zkmeta.CurrentHead(r.t.Context(), k.conn)
	r.must(err)
	var batches []*meta.Batch
	for from < head.Next() {
		frames, err := zkmeta.ReadTail(r.t.Context(), k.conn, head, from, 1<<20)
		r.must(err)
		entries, err := metalog.DecodeEntries(frames)
		r.must(err)
		for _, e := range entries {
			batches = append(batches, e.Batch)
		}
		from += int64(len(entries))
	}
	return epochsOf(batches)
}

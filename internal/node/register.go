package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
)

// Liveness (DESIGN §5): a node registers, then beats every heartbeatEvery on a
// connection of its own. What an answer says of the leader and of the log goes to
// whoever needs it.
const (
	heartbeatEvery   = 2 * time.Second
	catchUpEvery     = 200 * time.Millisecond // instead, until what was there at the registration is applied
	heartbeatTimeout = 5 * time.Second
	registerRetryMin = 200 * time.Millisecond
	registerRetryMax = 5 * time.Second
)

// errFinalRefusal ends the process: the cluster will never take this node as it is.
var errFinalRefusal = errors.New("node: refused by the cluster")

// standing is what the last answers said.
type standing struct {
	incarnation   int64
	epoch         int64
	highWatermark int64
	heard         time.Duration // when a controller last answered
	registered    bool
}

// beat keeps the node registered and alive until ctx ends. It returns an error
// only when the cluster refuses the node for good.
func (n *Node) beat(ctx context.Context) error {
	wait, goal := registerRetryMin, int64(0)
	unheard := 0 // heartbeats in a row that were not answered
	for ctx.Err() == nil {
		if !n.isRegistered() {
			err := n.register(ctx)
			switch {
			case errors.Is(err, errFinalRefusal):
				return err
			case err != nil:
				if ctx.Err() == nil {
					n.log.Warn().Err(err).Dur("dur", wait).Msg("not registered, tried again after a pause")
				}
				pause(ctx, wait)
				wait = min(2*wait, registerRetryMax)
				continue
			}
			wait, goal = registerRetryMin, n.highWatermark()
		}
		applied := n.currentImage().Next()
		err := n.heartbeat(ctx)
		if err != nil && ctx.Err() == nil {
			n.heardOf(err)
		}
		n.tellHeartbeat(ctx, &unheard, err)
		if applied < goal { // it gets work once it has caught up, and says so soon
			pause(ctx, catchUpEvery)
		} else {
			pause(ctx, heartbeatEvery)
		}
	}
	return nil
}

// tellHeartbeat tells when heartbeats cease to be answered, once a minute while they are
// not, and when they are again.
func (n *Node) tellHeartbeat(ctx context.Context, unheard *int, err error) {
	const every = int(time.Minute / heartbeatEvery)
	switch {
	case err == nil && *unheard > 0:
		n.log.Info().Int("failed", *unheard).Msg("heartbeats are answered again")
		*unheard = 0
	case err != nil && ctx.Err() == nil:
		if *unheard%every == 0 {
			n.log.Warn().Err(err).Int("failed", *unheard+1).Msg("heartbeat not answered, tried again")
		}
		*unheard++
	}
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// checkDisplaced asks, before a node that was registered registers again,
// whether another process has its id and its store by now: a copied data
// directory. If both went on registering, each would displace the other for ever.
func (n *Node) checkDisplaced(ctx context.Context) error {
	if n.incarnation() == 0 {
		return nil
	}
	nodes, err := api.List[api.NodeView](ctx, n.control, "/nodes")
	if err != nil {
		return err
	}
	for _, other := range nodes {
		if other.ID == n.cfg.ID && other.StoreID == n.store.StoreID() && !slices.Contains(n.boots, other.BootID) {
			return fmt.Errorf("%w: another process at %s is node %s with this store: its data directory is a copy of %s, or the other way round",
				errFinalRefusal, other.URL, n.cfg.ID, n.cfg.Data)
		}
	}
	return nil
}

// register introduces the node.
func (n *Node) register(ctx context.Context) error {
	if err := n.checkDisplaced(ctx); err != nil {
		return err
	}
	if n.boots == nil { // durable before it says anything that may arrive late
		known := readBoots(n.fs).and(n.bootID)
		if err := known.write(n.fs); err != nil {
			n.noteFatal(err)
			return err
		}
		n.boots = known
	}
	var out api.Registered
	err := n.control.Post(ctx, api.PathRegister, api.Register{
		Node: n.cfg.ID, URL: n.url, Zone: n.cfg.Zone, StoreID: n.store.StoreID(), BootID: n.bootID, ClusterID: n.id.ClusterID,
	}, &out)
	var answer *httpx.Error
	if errors.As(err, &answer) {
		switch answer.Code {
		case api.CodeOtherCluster, api.CodeURLNotAllowed, "INVALID_NODE":
			if n.incarnation() == 0 { // it has never been of the cluster: the directory stays as it was
				n.noteFatal(n.boots[:len(n.boots)-1].write(n.fs))
			}
			return fmt.Errorf("%w: %s", errFinalRefusal, answer.Message)
		}
	}
	if err != nil {
		return err
	}
	if n.id.ClusterID != out.ClusterID {
		if n.id.ClusterID != uuid.Nil {
			return fmt.Errorf("%w: data directory %s belongs to cluster %s, the controller is of cluster %s", errFinalRefusal, n.cfg.Data, n.id.ClusterID, out.ClusterID)
		}
		n.mu.Lock()
		n.id.ClusterID = out.ClusterID
		n.mu.Unlock()
		if err := n.id.write(n.fs); err != nil {
			n.noteFatal(err)
			return err
		}
	}
	n.mu.Lock()
	n.standing.incarnation, n.standing.epoch, n.standing.registered = out.Incarnation, out.Epoch, true
	n.standing.highWatermark = max(n.standing.highWatermark, out.HighWatermark)
	n.standing.heard = n.now()
	n.mu.Unlock()
	n.protocol.SetLeader(out.Leader)
	n.follower.LeaderHeard(out.Epoch)
	n.copies.post(Registered{Incarnation: out.Incarnation, Epoch: out.Epoch, HighWatermark: out.HighWatermark})
	n.log.Info().Int64("incarnation", out.Incarnation).Int64("epoch", out.Epoch).Str("leader", out.Leader).Msg("registered")
	notify(n.wake)
	return nil
}

func (n *Node) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	n.beats++
	var out api.HeartbeatAnswer
	if err := n.pulse.Post(ctx, api.PathHeartbeat, api.Heartbeat{
		Node: n.cfg.ID, Incarnation: n.incarnation(), AppliedOffset: n.currentImage().Next(),
		Sequence: n.beats, WallClock: time.Now().UnixMilli(), Busy: n.copies.busy(),
	}, &out); err != nil {
		return err
	}
	n.mu.Lock()
	newEpoch := out.Epoch != n.standing.epoch
	n.standing.epoch, n.standing.highWatermark, n.standing.heard = out.Epoch, out.HighWatermark, n.now()
	incarnation := n.standing.incarnation
	n.mu.Unlock()
	n.control.Learn(out.Leader)
	n.protocol.SetLeader(out.Leader)
	if newEpoch {
		n.copies.post(Registered{Incarnation: incarnation, Epoch: out.Epoch, HighWatermark: out.HighWatermark})
	}
	return nil
}

// heardOf looks at an answer for what it says of this node's standing.
func (n *Node) heardOf(err error) {
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Code == api.CodeStaleIncarnation {
		n.mu.Lock()
		n.standing.registered = false
		n.mu.Unlock()
	}
}

func (n *Node) isRegistered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standing.registered
}

func (n *Node) highWatermark() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standing.highWatermark
}

func (n *Node) incarnation() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standing.incarnation
}

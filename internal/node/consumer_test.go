package node

import (
	"testing"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/stream"
)

func TestSealWithoutABuilderFails(t *testing.T) {
	c := &consumer{results: make(chan ConsumptionEvent, 1)}
	r := newRunOf(t, c)
	r.perform(commit.Seal{End: 10})
	c.effects.Wait()
	done := (<-c.results).(EffectDone)
	if failed, ok := done.Event.(commit.SealFailed); !ok || failed.End != 10 || failed.Error == "" || done.Run != 7 || done.Segment.Seq != 3 {
		t.Fatalf("%+v", done)
	}
}

func newRunOf(t *testing.T, c *consumer) *run {
	c.n = &Node{life: t.Context()}
	return newRun(c, OpenBuilder{Segment: &meta.Segment{Seq: 3}, Run: 7})
}

func TestStreamThatCannotBeOpenedIsAFeedThatBroke(t *testing.T) {
	c := &consumer{n: &Node{life: t.Context(), streams: stream.NewOpener("")}, feeds: map[FeedID]*feed{}}
	c.perform(OpenFeed{Feed: 1, Config: &meta.Config{Stream: meta.StreamConfig{Type: "carrier pigeon"}}})
	<-c.feeds[1].done
	if at := c.feeds[1].standing(); at.Err == nil {
		t.Errorf("%+v", at)
	}
	c.perform(OpenFeed{Feed: 2, Private: true})
	<-c.feeds[2].done
	if c.shared != 1 {
		t.Error("the private feed is the partition's")
	}
	c.perform(CloseFeed{2})
	c.perform(CloseFeed{1})
	if len(c.feeds) != 0 {
		t.Error("they are still there")
	}
}

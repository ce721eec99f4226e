package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
)

// TestSegmentsGoToS3 has processes that keep their segments in a real S3 server,
// which then goes away: commits and replication go on without it, and when it is
// back it gets what it has missed. A process sees the server by its settings and
// the environment only.
func TestSegmentsGoToS3(t *testing.T) {
	gateway := s3test.Start(t)
	proxy := s3test.NewProxy(t, gateway.Addr())
	for _, setting := range gateway.Environ() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	const root, uri = "s3://" + s3test.Bucket + "/backups", "s3://" + s3test.Bucket + "/backups/of-e2e"
	access := deepstore.S3Config{Endpoint: proxy.Endpoint()}
	f, _ := startFleet(t, fleetOptions{
		nodes:      2,
		node:       func(_ int, cfg *node.Config) { cfg.DeepStoreRoots, cfg.S3 = []string{root}, access },
		controller: func(cfg *controller.Config) { cfg.DeepStoreRoots, cfg.S3 = []string{root}, access },
	})
	p := newProducer(t, f.streamRoot(), "clicks", 2)
	p.add(150)
	f.createTable("clicks", map[string]any{"deepStore": map[string]any{"uri": uri}})
	f.awaitComplete("clicks", p.ends(), f.urls())
	f.awaitInDeepStore("clicks")

	proxy.Outage()
	p.add(150)
	f.awaitCommitted("clicks", 2*(150+100)) // a segment more of each partition
	f.await("the copies on the nodes", func() (bool, string) {
		for _, s := range f.committedSegments("clicks") {
			if s.CountedCopies != 2 {
				return false, fmt.Sprintf("%s has %d", s.Name, s.CountedCopies)
			}
		}
		return true, ""
	})
	missing := 0
	for _, s := range f.committedSegments("clicks") {
		if !s.InDeepStore {
			missing++
		}
	}
	if missing != 2 {
		t.Errorf("S3 is away, and %d segments are not in it, want the two that came since", missing)
	}
	proxy.Heal()
	f.awaitComplete("clicks", p.ends(), f.urls())
	f.awaitInDeepStore("clicks")

	store, err := deepstore.Open(uri, []string{root}, deepstore.S3Config{Endpoint: gateway.Endpoint(), Credentials: gateway.Credentials()})
	if err != nil {
		t.Fatal(err)
	}
	segments := f.committedSegments("clicks")
	for _, s := range segments {
		key, err := deepstore.DataKey(s.Name, s.Digest)
		if err == nil {
			err = deepstore.VerifySegment(t.Context(), store, key, s.SizeBytes, s.Digest)
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	objects, err := store.List(context.Background(), "", "", 1000)
	if err != nil || len(objects) != 2*len(segments) {
		t.Errorf("%d objects of %d segments, %v", len(objects), len(segments), err)
	}
	f.checkLeftovers("clicks")
}

// awaitInDeepStore waits until the leader has verified a copy of every segment.
func (f *fleet) awaitInDeepStore(table string) {
	f.t.Helper()
	f.await("every segment of "+table+" in the deep store", func() (bool, string) {
		missing := 0
		for _, s := range f.committedSegments(table) {
			if !s.InDeepStore {
				missing++
			}
		}
		return missing == 0, fmt.Sprintf("%d are not", missing)
	})
}

package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/node"
)

func TestExampleSettingsLoad(t *testing.T) {
	var s settings
	if err := cmdline.Parse("shoal-node", "", &s, []string{"--config", "../../deploy/node.yaml"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := node.Config{
		Controllers: []string{"http://127.0.0.1:7070"}, Data: "/var/lib/shoal/node", Listen: "127.0.0.1:7071",
		StreamRoot: "/var/lib/shoal/stream", DeepStoreRoots: []string{"/var/lib/shoal/deepstore"}, SendsMax: 32,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestEveryFlagReachesTheNode(t *testing.T) {
	var s settings
	err := cmdline.Parse("shoal-node", "", &s, []string{
		"--controllers=http://a:1,http://b:2", "--data=d", "--id=n", "--zone=z", "--listen=:1", "--advertise=http://c:3",
		"--stream-root=s", "--deepstore-root=x", "--allow-beyond-loopback",
		"--sends-max=7", "--send-rate=100MiB", "--fetch-rate=50 MB", "--deepstore-fetch-rate=1000000",
		"--s3-endpoint=http://s3:1", "--s3-region=r", "--s3-path-style=never",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := node.Config{
		Controllers: []string{"http://a:1", "http://b:2"}, Data: "d", ID: "n", Zone: "z", Listen: ":1", Advertise: "http://c:3",
		StreamRoot: "s", DeepStoreRoots: []string{"x"}, AllowBeyondLoopback: true,
		SendsMax: 7, SendRate: 100 << 20, FetchRate: 50e6, DeepStoreFetchRate: 1e6,
		S3: deepstore.S3Config{Endpoint: "http://s3:1", Region: "r", PathStyle: deepstore.PathNever},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestNoSendsAtAllIsRefused(t *testing.T) {
	var s settings
	if err := cmdline.Parse("shoal-node", "", &s, []string{"--controllers=http://a:1", "--data=d", "--sends-max=0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.config(); err == nil || !strings.Contains(err.Error(), "--sends-max 0: at least 1") {
		t.Errorf("got %v", err)
	}
}

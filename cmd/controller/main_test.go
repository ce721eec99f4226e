package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/controller"
)

func TestExampleSettingsLoad(t *testing.T) {
	var s settings
	if err := cmdline.Parse("shoal-controller", "", &s, []string{"--config", "../../deploy/controller.yaml"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := controller.Config{
		Data: "/var/lib/shoal/controller", Listen: "127.0.0.1:7070",
		StreamRoot: "/var/lib/shoal/stream", DeepStoreRoots: []string{"/var/lib/shoal/deepstore"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestEveryFlagReachesTheController(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s settings
	err := cmdline.Parse("shoal-controller", "", &s, []string{
		"--data=d", "--listen=:1", "--advertise=http://a:1", "--stream-root=s", "--deepstore-root=x,y",
		"--deepstore-root=z", "--node-hosts=n,m", "--cluster-token-file", token, "--allow-beyond-loopback",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := controller.Config{
		Data: "d", Listen: ":1", Advertise: "http://a:1", StreamRoot: "s", DeepStoreRoots: []string{"x", "y", "z"},
		NodeHosts: []string{"n", "m"}, ClusterToken: "secret", AllowBeyondLoopback: true,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

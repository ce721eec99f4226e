package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/zkmeta"
)

func TestExampleSettingsLoad(t *testing.T) {
	var s settings
	if err := cmdline.Parse("shoal-controller", "", &s, []string{"--config", "../../deploy/controller.yaml"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := controller.Config{
		Data: "/var/lib/shoal/controller", Listen: "127.0.0.1:7070",
		Metadata: controller.Embedded, ZooKeeper: zkmeta.Access{SessionTimeout: 10 * time.Second},
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
		"--data=d", "--id=c1", "--metadata=zookeeper://zk/r", "--zookeeper-timeout=4s", "--zookeeper-user=u",
		"--zookeeper-password-file", token, "--listen=:1", "--advertise=http://a:1", "--stream-root=s", "--deepstore-root=x,y",
		"--deepstore-root=z", "--node-hosts=n,m", "--cluster-token-file", token, "--allow-beyond-loopback",
		"--s3-endpoint=http://s3:1", "--s3-region=r", "--s3-path-style=never",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.config()
	want := controller.Config{
		Data: "d", ID: "c1", Metadata: "zookeeper://zk/r",
		ZooKeeper: zkmeta.Access{SessionTimeout: 4 * time.Second, User: "u", Password: "secret"}, Listen: ":1", Advertise: "http://a:1", StreamRoot: "s", DeepStoreRoots: []string{"x", "y", "z"},
		NodeHosts: []string{"n", "m"}, ClusterToken: "secret", AllowBeyondLoopback: true,
		S3: deepstore.S3Config{Endpoint: "http://s3:1", Region: "r", PathStyle: deepstore.PathNever},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

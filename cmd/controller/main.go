// Command shoal-controller decides: it holds the metadata, leads the segment
// completion protocol and serves the admin API. See internal/controller.
package main

import (
	"os"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/controller"
)

// settings are the flags; a settings file has them in camel case.
type settings struct {
	cmdline.Common

	Data                string            `help:"Directory of the metadata log. It is made if it is not there." placeholder:"DIR" required:"" env:"SHOAL_DATA"`
	ID                  string            `help:"Name of this controller in the log and in the election; its URL unless given." placeholder:"NAME" env:"SHOAL_ID"`
	Metadata            string            `help:"Where the metadata is: embedded (in --data alone, one controller), or zookeeper://host:port,host:port/root (any number of controllers)." placeholder:"WHERE" default:"embedded" env:"SHOAL_METADATA"`
	Zookeeper           cmdline.ZooKeeper `embed:"" prefix:"zookeeper-"`
	Listen              string            `help:"Address to serve on; without a host it is loopback." placeholder:"ADDR" default:"127.0.0.1:7070" env:"SHOAL_LISTEN"`
	Advertise           string            `help:"URL that others reach this controller by; made from --listen unless given." placeholder:"URL" env:"SHOAL_ADVERTISE"`
	StreamRoot          string            `help:"Directory that streams of type files are below." placeholder:"DIR" env:"SHOAL_STREAM_ROOT"`
	DeepstoreRoot       cmdline.Roots     `help:"What deep stores may be below: a directory (file://), or s3://bucket or s3://bucket/prefix. May be given several times." placeholder:"WHERE" env:"SHOAL_DEEPSTORE_ROOT"`
	S3                  cmdline.S3        `embed:"" prefix:"s3-"`
	NodeHosts           []string          `help:"Host that nodes may register URLs of, besides the one they call from." placeholder:"HOST" env:"SHOAL_NODE_HOSTS"`
	ClusterTokenFile    string            `help:"File with the token that everything that changes state must carry." placeholder:"FILE" env:"SHOAL_CLUSTER_TOKEN_FILE"`
	AllowBeyondLoopback bool              `help:"Let --listen be an address that other machines can reach." env:"SHOAL_ALLOW_BEYOND_LOOPBACK"`
}

func main() {
	var s settings
	os.Exit(cmdline.Main("shoal-controller", "Shoal's controller: metadata, the completion protocol, the admin API.", &s,
		func(log zerolog.Logger) (cmdline.Process, error) {
			cfg, err := s.config()
			if err != nil {
				return nil, err
			}
			return controller.Open(cfg, log)
		}))
}

func (s *settings) config() (controller.Config, error) {
	token, err := cmdline.ReadToken(s.ClusterTokenFile)
	if err != nil {
		return controller.Config{}, err
	}
	access, err := s.Zookeeper.Access()
	return controller.Config{
		Data: s.Data, ID: s.ID, Metadata: s.Metadata, ZooKeeper: access, Listen: s.Listen, Advertise: s.Advertise,
		StreamRoot: s.StreamRoot, DeepStoreRoots: s.DeepstoreRoot, S3: s.S3.Config(), NodeHosts: s.NodeHosts,
		ClusterToken: token, AllowBeyondLoopback: s.AllowBeyondLoopback,
	}, err
}

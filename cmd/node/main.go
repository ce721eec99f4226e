// Command shoal-node consumes partitions, and builds, stores, serves and
// uploads segments. See internal/node.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/node"
)

// settings are the flags; a settings file has them in camel case.
type settings struct {
	cmdline.Common

	Controllers         []string      `help:"URLs of the controllers, comma-separated." placeholder:"URL" default:"http://127.0.0.1:7070" env:"SHOAL_CONTROLLERS"`
	Data                string        `help:"Directory of the node's segments. It is made if it is not there." placeholder:"DIR" required:"" env:"SHOAL_DATA"`
	ID                  string        `name:"id" help:"The node's id; made once and stored in --data unless given." placeholder:"ID" env:"SHOAL_NODE_ID"`
	Zone                string        `help:"Where the node is: replicas are spread over zones, downloads prefer their own." placeholder:"ZONE" env:"SHOAL_ZONE"`
	Listen              string        `help:"Address to serve on; without a host it is loopback." placeholder:"ADDR" default:"127.0.0.1:7071" env:"SHOAL_LISTEN"`
	Advertise           string        `help:"URL that others reach this node by; made from --listen unless given." placeholder:"URL" env:"SHOAL_ADVERTISE"`
	StreamRoot          string        `help:"Directory that streams of type files are below." placeholder:"DIR" env:"SHOAL_STREAM_ROOT"`
	DeepstoreRoot       cmdline.Roots `help:"What deep stores may be below: a directory (file://), or s3://bucket or s3://bucket/prefix. May be given several times." placeholder:"WHERE" env:"SHOAL_DEEPSTORE_ROOT"`
	S3                  cmdline.S3    `embed:"" prefix:"s3-"`
	ClusterTokenFile    string        `help:"File with the cluster's token." placeholder:"FILE" env:"SHOAL_CLUSTER_TOKEN_FILE"`
	AllowBeyondLoopback bool          `help:"Let --listen be an address that other machines can reach." env:"SHOAL_ALLOW_BEYOND_LOOPBACK"`

	SendsMax           int          `help:"How many segments are sent at a time, at least 1; others are asked to come again." placeholder:"N" default:"32" env:"SHOAL_SENDS_MAX"`
	SendRate           config.Bytes `help:"Most that is sent in a second to all who read from this node; 0 is no limit." placeholder:"BYTES" default:"0" env:"SHOAL_SEND_RATE"`
	FetchRate          config.Bytes `help:"Most that is downloaded in a second from other nodes; 0 is no limit." placeholder:"BYTES" default:"0" env:"SHOAL_FETCH_RATE"`
	DeepstoreFetchRate config.Bytes `help:"Most that is downloaded in a second from deep stores; 0 is no limit." placeholder:"BYTES" default:"0" env:"SHOAL_DEEPSTORE_FETCH_RATE"`
}

func main() {
	var s settings
	os.Exit(cmdline.Main("shoal-node", "A node of Shoal: consumes partitions, builds, stores and serves segments.", &s,
		func(log zerolog.Logger) (cmdline.Process, error) {
			cfg, err := s.config()
			if err != nil {
				return nil, err
			}
			return node.Open(cfg, log)
		}))
}

func (s *settings) config() (node.Config, error) {
	token, err := cmdline.ReadToken(s.ClusterTokenFile)
	if s.SendsMax < 1 { // node.Config has 0 for the default
		err = errors.Join(err, fmt.Errorf("--sends-max %d: at least 1", s.SendsMax))
	}
	return node.Config{
		Controllers: s.Controllers, Data: s.Data, ID: s.ID, Zone: s.Zone, Listen: s.Listen, Advertise: s.Advertise,
		StreamRoot: s.StreamRoot, DeepStoreRoots: s.DeepstoreRoot, S3: s.S3.Config(),
		ClusterToken: token, AllowBeyondLoopback: s.AllowBeyondLoopback,
		SendsMax: s.SendsMax, SendRate: int64(s.SendRate), FetchRate: int64(s.FetchRate), DeepStoreFetchRate: int64(s.DeepstoreFetchRate),
	}, err
}

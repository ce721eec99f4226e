package cmdline

import (
	"encoding/json"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/config"
)

// S3 are the settings of whoever talks to S3. Embed it with the prefix "s3-".
// Credentials are none of them: they come by the default chain of the AWS SDK.
type S3 struct {
	Endpoint  string `help:"URL of a server that is compatible with S3; AWS unless given." placeholder:"URL" env:"SHOAL_S3_ENDPOINT"`
	Region    string `help:"Region of the buckets; that of AWS_REGION or the shared files unless given." placeholder:"REGION" env:"SHOAL_S3_REGION"`
	PathStyle string `help:"Whether buckets are in the path of a URL, not in its host: ${enum}; auto is always, but for AWS." placeholder:"WHEN" enum:"auto,always,never" default:"auto" env:"SHOAL_S3_PATH_STYLE"`
}

// Config is what the settings say.
func (s S3) Config() deepstore.S3Config {
	path := s.PathStyle
	if path == deepstore.PathAuto {
		path = ""
	}
	return deepstore.S3Config{Endpoint: s.Endpoint, Region: s.Region, PathStyle: path}
}

// MarshalJSON is for the log, which must not have what somebody may have put into
// the URL by mistake.
func (s S3) MarshalJSON() ([]byte, error) {
	type plain S3
	s.Endpoint = config.WithoutSecrets(s.Endpoint)
	return json.Marshal(plain(s))
}

// Roots are what deep stores may be below: directories and s3:// URIs.
type Roots []string

// MarshalJSON is for the log, as S3's.
func (r Roots) MarshalJSON() ([]byte, error) {
	shown := make([]string, len(r))
	for i, root := range r {
		shown[i] = config.WithoutSecrets(root)
	}
	return json.Marshal(shown)
}

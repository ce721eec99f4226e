package cmdline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/deepstore"
)

func TestS3Settings(t *testing.T) {
	var s struct {
		S3 S3 `embed:"" prefix:"s3-"`
	}
	if err := Parse("test", "", &s, nil); err != nil || s.S3.Config() != (deepstore.S3Config{}) {
		t.Errorf("no settings: %+v, %v", s.S3.Config(), err)
	}
	t.Setenv("SHOAL_S3_REGION", "r")
	want := deepstore.S3Config{Endpoint: "http://e", Region: "r", PathStyle: deepstore.PathNever}
	if err := Parse("test", "", &s, []string{"--s3-endpoint=http://e", "--s3-path-style=never"}); err != nil || s.S3.Config() != want {
		t.Errorf("got %+v, %v", s.S3.Config(), err)
	}
	if err := Parse("test", "", &s, []string{"--s3-path-style=sometimes"}); err == nil {
		t.Error("a path style that is none was taken")
	}
}

func TestS3SettingsAreLoggedWithoutSecrets(t *testing.T) {
	for _, endpoint := range []string{"http://user:hunter2@e", "http://user:hunter2@e:x\x7f", "http://e?hunter2"} {
		text, err := json.Marshal(S3{Endpoint: endpoint, Region: "r"})
		if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), `"r"`) {
			t.Errorf("%q is logged as %s, %v", endpoint, text, err)
		}
	}
}

func TestRootsAreLoggedWithoutSecrets(t *testing.T) {
	var s struct {
		Roots Roots `name:"deepstore-root"`
	}
	if err := Parse("test", "", &s, []string{"--deepstore-root=deep,s3://user:hunter2@bucket/x"}); err != nil || len(s.Roots) != 2 || s.Roots[1] != "s3://user:hunter2@bucket/x" {
		t.Fatalf("got %q, %v", []string(s.Roots), err)
	}
	if text, err := json.Marshal(s); err != nil || string(text) != `{"Roots":["deep","s3://…@bucket/x"]}` {
		t.Errorf("logged as %s, %v", text, err)
	}
}

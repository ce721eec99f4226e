package config

import "testing"

func TestWithoutSecrets(t *testing.T) {
	for uri, want := range map[string]string{
		"":                                "",
		"deep":                            "deep",
		"/srv/a@b":                        "/srv/a@b",
		"file:///srv/a@b":                 "file:///srv/a@b",
		"s3://bucket/prefix":              "s3://bucket/prefix",
		"http://127.0.0.1:7480":           "http://127.0.0.1:7480",
		"s3://key:hunter2@bucket/prefix":  "s3://…@bucket/prefix",
		"s3://key:hunt/er2@bucket/prefix": "s3://…@bucket/prefix",
		"http://%zzhunter2@host":          "http://…@host",
		"key:hunter2@host":                "…@host",
		"http://host?token=hunter2":       "http://host?…",
		"http://host?hunter2@x":           "http://host?…",
		"http://host?":                    "http://host",
	} {
		if got := WithoutSecrets(uri); got != want {
			t.Errorf("%q becomes %q, want %q", uri, got, want)
		}
	}
}

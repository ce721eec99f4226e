package deepstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/config"
)

func TestS3URIsBelowRoots(t *testing.T) {
	roots := []string{"/var/deep", "s3://backups/shoal", "s3://all"}
	for _, test := range []struct {
		uri  string
		want error // nil: it is allowed
		says string
	}{
		{"s3://backups/shoal", nil, ""},
		{"s3://backups/shoal/", nil, ""},
		{"s3://backups/shoal/a/b", nil, ""},
		{"s3://all", nil, ""},
		{"s3://all/x", nil, ""},
		{"s3://all/of=some(one)'s/!x*", nil, ""},
		{"s3://backups", ErrNotAllowed, "s3://backups/shoal, s3://all"},
		{"s3://backups/shoal2", ErrNotAllowed, ""},
		{"s3://backups/other", ErrNotAllowed, ""},
		{"s3://all2/x", ErrNotAllowed, ""},
		{"s3://var/deep", ErrNotAllowed, ""},
		{"s3://", errAny, "a bucket"},
		{"s3:", errAny, "a bucket"},
		{"s3://b", errAny, "a bucket"},
		{"s3://all:80/x", errAny, "a bucket"},
		{"s3:all/x", errAny, "s3://bucket/prefix"},
		{"s3://all/x/../y", errAny, ". or .."},
		{"s3://all/x//y", errAny, "empty parts"},
		{"s3://all/a%2Fb", errAny, "between its slashes"},
		{"s3://all/a b", errAny, "between its slashes"},
		{"s3://all/x?versionId=1", errAny, "nothing after it"},
		{"s3://all/" + strings.Repeat("x", 513), errAny, "512"},
	} {
		err := CheckURI(test.uri, roots)
		if (err == nil) != (test.want == nil) || err != nil && (test.want != errAny && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %v that says %q", test.uri, err, test.want, test.says)
		}
	}
	if err := CheckURI("s3://key:hunter2@all/x", roots); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("credentials in a URI: %v", err)
	}
}

var errAny = errors.New("any")

func TestSettingsOfDeepStores(t *testing.T) {
	for _, test := range []struct {
		roots []string
		s3    S3Config
		says  []string
	}{
		{[]string{"deep", "/var/deep", "s3://backups/shoal"}, S3Config{Endpoint: "http://127.0.0.1:7480", PathStyle: PathNever}, nil},
		{nil, S3Config{Endpoint: "https://s3.example.org/"}, nil},
		{[]string{"s3://B@x", "file:///x", ""}, S3Config{}, []string{"credentials", `"file:///x"`, "not nothing"}},
		{nil, S3Config{Endpoint: "s3.example.org"}, []string{`"s3.example.org"`}},
		{nil, S3Config{Endpoint: "https://s3.example.org/bucket"}, []string{"https://host"}},
		{nil, S3Config{PathStyle: "sometimes"}, []string{"sometimes"}},
		{nil, S3Config{Endpoint: "https://k:hunter2@s3.example.org"}, []string{"credentials"}},
	} {
		var faults config.Faults
		Validate(test.roots, test.s3, &faults)
		if len(faults) != len(test.says) {
			t.Errorf("%v %+v: %v", test.roots, test.s3, faults)
			continue
		}
		text := faults.Error()
		for _, says := range test.says {
			if !strings.Contains(text, says) || strings.Contains(text, "hunter2") {
				t.Errorf("%v %+v: %v does not say %q", test.roots, test.s3, text, says)
			}
		}
	}
}

func FuzzParseS3(f *testing.F) {
	for _, s := range []string{"s3://backups/shoal", "s3://a.b-c/d/e_f=1/", "s3://", "s3://b/../x", "s3://b:1/x", "s3://u:p@b/x", "s3:b", "s3://b/%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		p, err := parseS3(uri)
		if err != nil {
			return
		}
		again, err := parseS3(p.String())
		if err != nil || again != p {
			t.Fatalf("%q is %+v, and its text %s %+v, %v", uri, p, p, again, err)
		}
		if !p.below(p) || !p.below(s3Place{bucket: p.bucket}) || p.below(s3Place{bucket: p.bucket, prefix: p.prefix + "x"}) {
			t.Fatalf("%+v is not where it is", p)
		}
	})
}

func TestS3Parts(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct{ size, part int64 }{
		{1, 1}, {16 * mib, 16 * mib}, {16*mib + 1, 8 * mib}, {80_000 * mib, 8 * mib}, {80_000*mib + 1, 9 * mib}, {5 << 40, 525 * mib},
	} {
		got := s3PartSize(test.size)
		if parts := (test.size + got - 1) / got; got != test.part || parts > s3PartsMax {
			t.Errorf("%d bytes go up in %d parts of %d, want %d", test.size, parts, got, test.part)
		}
	}
}

package segment

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDigestsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDigest.Draw(t, "digest")
		if got, err := ParseDigest(d.String()); err != nil || got != d {
			t.Fatalf("%s came back as %s, %v", d, got, err)
		}
		if got, err := ParseETag(d.ETag()); err != nil || got != d {
			t.Fatalf("%s came back as %s, %v", d.ETag(), got, err)
		}
		if !strings.HasPrefix(d.String(), d.Short()) || len(d.Short()) != 16 {
			t.Fatalf("short of %s is %s", d, d.Short())
		}
		text, err := json.Marshal(d)
		var viaJSON Digest
		if err != nil || json.Unmarshal(text, &viaJSON) != nil || viaJSON != d {
			t.Fatalf("%s came back as %s, %v", text, viaJSON, err)
		}
	})
}

func TestDigestsHaveOneSpelling(t *testing.T) {
	good := strings.Repeat("ab", 32)
	for _, s := range []string{"", good[1:], good + "ab", strings.ToUpper(good), strings.Repeat("xy", 32), " " + good, "0x" + good[2:]} {
		if d, err := ParseDigest(s); err == nil {
			t.Errorf("digest %q was accepted as %s", s, d)
		}
	}
	for _, s := range []string{good, `"` + good + `"`, `W/"b3-` + good + `"`, `"b3-` + good, `"b3-"`, `"b3-` + good + `","`} {
		if d, err := ParseETag(s); err == nil {
			t.Errorf("entity tag %q was accepted as %s", s, d)
		}
	}
}

// Fields that are not known yet are absent or empty in JSON.
func TestEmptyTextIsTheZeroDigest(t *testing.T) {
	d := Digest{1}
	if err := json.Unmarshal([]byte(`""`), &d); err != nil || !d.IsZero() {
		t.Fatalf("%s, %v", d, err)
	}
}

// The value is what `printf abc | openssl dgst -sha256 -binary | base64` prints.
func TestReprDigest(t *testing.T) {
	var s SHA256
	if err := s.UnmarshalText([]byte("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")); err != nil {
		t.Fatal(err)
	}
	if got, want := s.ReprDigest(), "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

package zkmeta

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in      string
		servers []string
		root    string
	}{
		{"zookeeper://h1:2181,h2:2182,h3:2183/shoal", []string{"h1:2181", "h2:2182", "h3:2183"}, "/shoal"},
		{"zookeeper://h1/shoal", []string{"h1:2181"}, "/shoal"},
		{"zookeeper://zk_1.internal:02181/a/b.c", []string{"zk_1.internal:2181"}, "/a/b.c"},
		{"zookeeper://[::1]:2181,[fe80:0::1]/shoal", []string{"[::1]:2181", "[fe80::1]:2181"}, "/shoal"},
		{"zookeeper://10.0.0.1:65535/zookeeper2", []string{"10.0.0.1:65535"}, "/zookeeper2"},
	}
	for _, tt := range tests {
		a, err := ParseAddress(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if want := (Address{tt.servers, tt.root}); !reflect.DeepEqual(a, want) {
			t.Errorf("%s: got %+v, want %+v", tt.in, a, want)
		}
		if again, err := ParseAddress(a.String()); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%s: %s does not round-trip: %+v, %v", tt.in, a, again, err)
		}
	}
}

func TestParseAddressNamesEveryFault(t *testing.T) {
	tests := []struct {
		in    string
		wants []string
	}{
		{"", []string{"begins with zookeeper://"}},
		{"http://h1:2181/shoal", []string{"begins with zookeeper://"}},
		{"zookeeper://h1:2181", []string{"lacks the root"}},
		{"zookeeper://h1:2181/", []string{"lacks the root"}},
		{"zookeeper:///shoal", []string{`"" has no host`}},
		{"zookeeper://h1,,h2/shoal", []string{`"" has no host`}},
		{"zookeeper://:2181/shoal", []string{"has no host"}},
		{"zookeeper://h1:/shoal", []string{`the port ""`}},
		{"zookeeper://h1:0/shoal", []string{`the port "0"`}},
		{"zookeeper://h1:65536/shoal", []string{`the port "65536"`}},
		{"zookeeper://h1:x,h 2:2181/shoal", []string{`the port "x"`, "in no host name"}},
		{"zookeeper://::1/shoal", []string{"goes in brackets"}},
		{"zookeeper://[::1/shoal", []string{"no IPv6 address in brackets"}},
		{"zookeeper://[10.0.0.1]/shoal", []string{"no IPv6 address in brackets"}},
		{"zookeeper://[::1]2181/shoal", []string{"after the bracket"}},
		{"zookeeper://h1:2181,h1/shoal", []string{"named twice"}},
		{"zookeeper://h1:2181/shoal,h2:2181/shoal", []string{"has a comma"}},
		{"zookeeper://h1/shoal/", []string{"ends in a slash"}},
		{"zookeeper://h1/a//b", []string{"empty part"}},
		{"zookeeper://h1/a/../b", []string{"is . or .."}},
		{"zookeeper://h1/./b", []string{"is . or .."}},
		{"zookeeper://h1/a\x00", []string{"does not take"}},
		{"zookeeper://h1/a\xff", []string{"does not take"}},
		{"zookeeper://h1/\U0001F41F", []string{"does not take"}},
		{"zookeeper://h1/zookeeper/x", []string{"ZooKeeper's own"}},
		{"zookeeper://:1,h2:x/a/", []string{"has no host", `the port "x"`, "ends in a slash"}},
	}
	for _, tt := range tests {
		a, err := ParseAddress(tt.in)
		if err == nil {
			t.Errorf("%q: no error, got %+v", tt.in, a)
			continue
		}
		for _, want := range tt.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v; want %q in it", tt.in, err, want)
			}
		}
	}
}

func TestParseAddressKeepsSecrets(t *testing.T) {
	for _, in := range []string{"zookeeper://joe:hunter2@h1/shoal", "joe:hunter2"} {
		if _, err := ParseAddress(in); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"zookeeper://h1:2181,[::1]:2/shoal", "zookeeper://h/..", "zookeeper://[fe80::1%eth0]/a", "zookeeper://,/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%q: %+v became %+v, %v", s, a, again, err)
		}
		// What the library would refuse, and FormatServers would change.
		if len(a.Servers) == 0 || !reflect.DeepEqual(zk.FormatServers(a.Servers), a.Servers) {
			t.Fatalf("%q: servers %q", s, a.Servers)
		}
	})
}

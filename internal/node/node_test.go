package node

import (
	"strings"
	"testing"
)

func TestConfigNamesEveryFault(t *testing.T) {
	good := Config{Controllers: []string{"http://c:1"}, Data: "d", Listen: ":0"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Config)
		says   []string // none: it is good
	}{
		{"limits", func(c *Config) { c.SendsMax, c.SendRate, c.FetchRate, c.DeepStoreFetchRate = 1, 64<<10, 1<<40, 1<<20 }, nil},
		{"rates that nobody lives on", func(c *Config) { c.SendRate, c.FetchRate, c.DeepStoreFetchRate = 64<<10-1, 1, -5 },
			[]string{"sendRate", "fetchRate", "deepstoreFetchRate", "65535B", "64KiB"}},
		{"no sends at all", func(c *Config) { c.SendsMax = -1 }, []string{"sendsMax"}},
		{"nothing", func(c *Config) { *c = Config{} }, []string{"controllers", "data", "listen"}},
	} {
		cfg := good
		test.change(&cfg)
		err := cfg.Validate()
		if (err != nil) != (test.says != nil) {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, want := range test.says {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", test.name, err, want)
			}
		}
	}
}

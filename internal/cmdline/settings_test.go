package cmdline

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

type testSettings struct {
	Common
	Data      string   `required:"" env:"SHOAL_TEST_DATA"`
	Listen    string   `default:"127.0.0.1:1" env:"SHOAL_TEST_LISTEN"`
	NodeHosts []string `env:"SHOAL_TEST_HOSTS"`
	Count     int      `default:"3"`
	AllowAll  bool
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSettingsComeInOrder(t *testing.T) {
	file := writeFile(t, "data: /file\nlisten: file:1\nnodeHosts: [a, b]\ncount: 7\nallowAll: true\nlogLevel: warn\n")
	t.Setenv("SHOAL_TEST_LISTEN", "env:1")
	for _, test := range []struct {
		name string
		args []string
		want testSettings
	}{
		{"file over defaults, environment over file", []string{"--config", file},
			testSettings{Data: "/file", Listen: "env:1", NodeHosts: []string{"a", "b"}, Count: 7, AllowAll: true}},
		{"flags over all", []string{"--config", file, "--data=/flag", "--listen=flag:1", "--node-hosts=c", "--count=9"},
			testSettings{Data: "/flag", Listen: "flag:1", NodeHosts: []string{"c"}, Count: 9, AllowAll: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got testSettings
			if err := Parse("test", "", &got, test.args); err != nil {
				t.Fatal(err)
			}
			if got.LogLevel != "warn" {
				t.Errorf("log level %q, want the file's", got.LogLevel)
			}
			got.Common = Common{}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestAllUnknownSettingsAreNamed(t *testing.T) {
	file := writeFile(t, "data: /d\nlisten_: x\nnode-hosts: [a]\nconfig: other.yaml\n")
	err := Parse("test", "", &testSettings{}, []string{"--config", file})
	if err == nil {
		t.Fatal("unknown settings were taken")
	}
	for _, want := range []string{"listen_", "node-hosts", "config", file} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestWrongValuesAreNamed(t *testing.T) {
	for name, text := range map[string]string{
		"count": "data: /d\ncount: many\n", "allow-all": "data: /d\nallowAll: perhaps\n",
		"log-level": "data: /d\nlogLevel: loud\n", "data": "count: 1\n", "settings.yaml": "data: [\n",
	} {
		if err := Parse("test", "", &testSettings{}, []string{"--config", writeFile(t, text)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v; want an error that names %s", text, err, name)
		}
	}
}

func TestReadToken(t *testing.T) {
	if token, err := ReadToken(""); token != "" || err != nil {
		t.Errorf("no file: got %q, %v", token, err)
	}
	if token, err := ReadToken(writeFile(t, "secret\n")); token != "secret" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
	for _, text := range []string{"", "\n", "two words\n", "two\nlines\n"} {
		if _, err := ReadToken(writeFile(t, text)); err == nil {
			t.Errorf("%q was taken for a token", text)
		}
	}
	if _, err := ReadToken(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a file that is not there was taken for no token")
	}
}

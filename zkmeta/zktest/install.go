package zktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// jarDir is where Debian puts Java libraries. The manifest of zookeeper.jar
// names the others that it needs; a binding of slf4j is ours to choose.
const jarDir = "/usr/share/java"

var jars = []string{"zookeeper.jar", "slf4j-simple.jar"}

// Installed says whether ZooKeeper can be run here, and if not, what is missing
// and how to install it.
func Installed() error {
	var missing []string
	if _, err := exec.LookPath("java"); err != nil {
		missing = append(missing, "java")
	}
	for _, jar := range jars {
		path := filepath.Join(jarDir, jar)
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, path)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("ZooKeeper is not installed (no %s): apt-get install zookeeper, which brings Java", strings.Join(missing, ", "))
}

// Required skips the test where ZooKeeper is not installed, and says how to
// install it. In CI it must be there.
func Required(t testing.TB) {
	t.Helper()
	err := Installed()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

func classPath() string {
	paths := make([]string, len(jars))
	for i, jar := range jars {
		paths[i] = filepath.Join(jarDir, jar)
	}
	return strings.Join(paths, string(filepath.ListSeparator))
}

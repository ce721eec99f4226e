package zktest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// orphanDir tells this test's second process where to run a server.
const orphanDir = "ZKTEST_ORPHAN_DIR"

// TestNoOrphans: a server goes with the process that started it, even if that is
// killed and cleans nothing up.
func TestNoOrphans(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		runUntilKilled(t, dir)
	}
	t.Parallel()
	Required(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoOrphans$")
	cmd.Env = append(os.Environ(), orphanDir+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid")))
	if err != nil {
		t.Fatalf("the other process said %q", line)
	}
	for deadline := time.Now().Add(serveMax); isAlive(pid); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("the server, pid %d, is still there", pid)
		}
	}
}

func runUntilKilled(t *testing.T, dir string) {
	p, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("pid", p.PID())
	select {}
}

// isAlive says whether a process runs. One that is dead and that nobody has
// waited for does not.
func isAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

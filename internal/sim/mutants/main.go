// Command mutants proves that the simulator sees what it says it sees: it plants
// bugs, one at a time (list.go), and demands that each is caught, by the invariant
// and within the number of seeds that the list says.
//
// A bug is a change to the text of the module's files. It is built with go build
// -overlay: nothing in the tree changes, and no production code knows of it. The
// seed that catches it is run once more without it, so that it is the bug that was
// caught and nothing else.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mutant is a bug that is planted on purpose.
type mutant struct {
	name  string
	edits []edit
	by    []string // the invariants that may catch it, the usual one first
	seeds int      // how many it may take, from the first on
}

// edit replaces a text that occurs exactly once in a file of the module.
type edit struct{ file, old, new string }

func main() {
	only := flag.String("only", "", "run these only, comma-separated")
	list := flag.Bool("list", false, "print the list, run nothing")
	limit := flag.Duration("timeout", 20*time.Minute, "for one of them, at most")
	flag.Parse()
	if *list {
		for _, m := range mutants {
			fmt.Printf("%-60s %s\n", m.name, m.demand())
		}
		return
	}
	chosen, err := choose(*only)
	survived := 0
	if err == nil {
		survived, err = runAll(chosen, *limit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	fmt.Printf("%d of %d caught as the list says\n", len(chosen)-survived, len(chosen))
	if survived > 0 {
		os.Exit(1)
	}
}

// demand says in words what is demanded of the simulator.
func (m *mutant) demand() string {
	return fmt.Sprintf("%s within %d seeds", strings.Join(m.by, ", "), m.seeds)
}

// choose returns the mutants of these names, or all.
func choose(names string) (chosen []mutant, err error) {
	if names == "" {
		return mutants, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %q", name)
		}
		chosen = append(chosen, mutants[i])
	}
	return chosen, nil
}

// runAll runs mutants one after another, as one simulator takes all the processors.
func runAll(chosen []mutant, limit time.Duration) (survived int, err error) {
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := bench{root: root, dir: dir, limit: limit}
	if err := b.build("sound", nil); err != nil {
		return 0, err
	}
	for _, m := range chosen {
		began := time.Now()
		what, ok := b.try(&m)
		if !ok {
			survived++
		}
		fmt.Printf("%-60s %s, %.0f s\n", m.name, what, time.Since(began).Seconds())
	}
	return survived, nil
}

// moduleRoot is the directory of go.mod, at or above the current one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// bench builds simulators and runs them.
type bench struct {
	root, dir string
	limit     time.Duration
}

// try runs one mutant, and says in words what came of it.
func (b *bench) try(m *mutant) (what string, ok bool) {
	changed, err := m.apply(b.root)
	if err == nil {
		err = b.build("mutant", changed)
	}
	if err != nil {
		return err.Error(), false
	}
	found, err := b.run("mutant", 1, m.seeds)
	switch {
	case err != nil:
		return err.Error(), false
	case found == nil:
		return fmt.Sprintf("SURVIVED %d seeds", m.seeds), false
	}
	what = fmt.Sprintf("%s at seed %d of %d", found.invariant, found.seed, m.seeds)
	if !slices.Contains(m.by, found.invariant) {
		return fmt.Sprintf("WRONG INVARIANT, %s and not %s: %s", what, strings.Join(m.by, ", "), found.text), false
	}
	sound, err := b.run("sound", found.seed, 1)
	switch {
	case err != nil:
		return err.Error(), false
	case sound != nil:
		return fmt.Sprintf("PROVES NOTHING, seed %d fails without it: %s", found.seed, sound.text), false
	}
	return what, true
}

// apply returns the changed files, by their path.
func (m *mutant) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		text, again := changed[path]
		if !again {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%q occurs %d times in %s, not once", e.old, n, e.file)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	return changed, nil
}

// build makes a simulator of the module with these files in place of its own.
func (b *bench) build(name string, changed map[string]string) error {
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for path, text := range changed {
		to := filepath.Join(b.dir, fmt.Sprintf("%d-%s", len(overlay.Replace), filepath.Base(path)))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return err
		}
		overlay.Replace[path] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-overlay", file, "-o", filepath.Join(b.dir, name), "./internal/sim/simulate")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build of %s: %w\n%s", name, err, out)
	}
	return nil
}

// violation is what a simulator has found.
type violation struct {
	seed      int
	invariant string
	text      string
}

// run runs seeds until one fails. No violation and no error: none did.
func (b *bench) run(name string, first, seeds int) (*violation, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, name),
		"-first", strconv.Itoa(first), "-seeds", strconv.Itoa(seeds), "-stop", "-shrink=false")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: not at an end after %s", name, b.limit)
	}
	if found := firstViolation(out); found != nil {
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil, nil
}

// failedSeed is the line that package sim prints of a seed that fails.
var failedSeed = regexp.MustCompile(`(?m)^seed (\d+): (\S+) at (.*)$`)

// firstViolation reads the output of a simulator. Seeds run side by side; of those
// that failed, the first counts.
func firstViolation(out []byte) (first *violation) {
	for _, line := range failedSeed.FindAllSubmatch(out, -1) {
		seed, err := strconv.Atoi(string(line[1]))
		if err == nil && (first == nil || seed < first.seed) {
			first = &violation{seed: seed, invariant: string(line[2]), text: string(bytes.TrimSpace(line[3]))}
		}
	}
	return first
}

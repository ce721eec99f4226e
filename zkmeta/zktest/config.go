package zktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// Config is how servers are run. Dir is required, the rest may be left zero.
type Config struct {
	// Dir gets a directory per server, "1" up, with its data, configuration and
	// log. It is made if absent and kept on Close; data in it is served again.
	Dir string

	// TickTime is ZooKeeper's tick, 500 ms by default. It allows session
	// time-outs from 2 to 20 ticks.
	TickTime time.Duration
	Lines    []string // more lines of zoo.cfg; the last of a key counts
	Java     []string // more arguments of java, before the class: -Xmx, -D…

	linked bool // the servers reach one another through the proxies of a mesh
	mesh   mesh
}

const defaultTick = 500 * time.Millisecond

// member is one server's place in an ensemble; alone, its group is only itself.
type member struct {
	id               int // 1 up
	client           int // ports
	quorum, election int
}

func newMember(id int) (member, error) {
	m := member{id: id}
	for _, port := range []*int{&m.client, &m.quorum, &m.election} {
		var err error
		if *port, err = httpxtest.FreePort(); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m member) release() {
	httpxtest.GiveBack(m.client)
	httpxtest.GiveBack(m.quorum)
	httpxtest.GiveBack(m.election)
}

// write puts zoo.cfg and myid of one member into dir.
func (c Config) write(dir string, self member, all []member) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), fmt.Appendln(nil, self.id), 0o644); err != nil {
		return err
	}
	text := strings.Join(c.file(data, self, all), "\n") + "\n"
	return os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(text), 0o644)
}

// file returns the lines of zoo.cfg. ZooKeeper syncs its log before it answers
// unless told otherwise, and the harness does not tell it.
func (c Config) file(data string, self member, all []member) []string {
	tick := c.TickTime
	if tick == 0 {
		tick = defaultTick
	}
	lines := []string{
		fmt.Sprintf("tickTime=%d", tick.Milliseconds()),
		"dataDir=" + data,
		fmt.Sprintf("clientPort=%d", self.client),
		"clientPortAddress=127.0.0.1",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	}
	if len(all) > 1 {
		// A follower may take 10 s to join (at the default tick) and 4 s to answer:
		// the machine may be busy.
		lines = append(lines, "initLimit=20", "syncLimit=8", "quorumListenOnAllIPs=false")
		for _, m := range all {
			m = c.mesh.seen(self, m)
			lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", m.id, m.quorum, m.election))
		}
	}
	return append(lines, c.Lines...)
}

// command returns the arguments of java for the zoo.cfg in dir.
func (c Config) command(dir string) []string {
	args := []string{"-Xmx256m", "-XX:-UsePerfData"}
	// The collector with the least memory, unless the caller chose one: java
	// refuses two.
	if !slices.ContainsFunc(c.Java, func(arg string) bool { return strings.HasSuffix(arg, "GC") }) {
		args = append(args, "-XX:+UseSerialGC")
	}
	args = append(args,
		"-Djava.net.preferIPv4Stack=true",
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		// A line for each four-letter word would hide the rest.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
		"-cp", classPath())
	args = append(args, c.Java...)
	return append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
}

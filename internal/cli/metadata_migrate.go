package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/zkmeta"
)

type metadataMigrateCommand struct {
	Zookeeper cmdline.ZooKeeper `embed:"" prefix:"zookeeper-"`

	From string `required:"" help:"Where the metadata is: embedded:DIR, the data directory of a controller, or zookeeper://host:port,host:port/root." placeholder:"PLACE"`
	To   string `required:"" help:"Where it is to be: the other of the two. If the command is cut short, run it again." placeholder:"PLACE"`
}

const embeddedPrefix = controller.Embedded + ":"

// places are the two ends of a migration.
type places struct {
	dir  string
	tree zkmeta.Address
	into bool // into ZooKeeper
}

// places reads the two flags.
func (c metadataMigrateCommand) places() (p places, err error) {
	from, fromDir := strings.CutPrefix(c.From, embeddedPrefix)
	to, toDir := strings.CutPrefix(c.To, embeddedPrefix)
	if fromDir == toDir {
		return p, usageError{fmt.Errorf("one of --from and --to is %sDIR, and the other zookeeper://host:port,…/root", embeddedPrefix)}
	}
	p.into = fromDir
	address := from
	if p.dir = to; p.into {
		p.dir, address = from, to
	}
	if p.dir == "" {
		return p, usageError{errors.New("embedded: lacks the directory")}
	}
	if p.tree, err = zkmeta.ParseAddress(address); err != nil {
		return p, usageError{err}
	}
	return p, nil
}

// migration is what `shoal metadata migrate -o json` prints.
type migration struct {
	controller.Migrated
	From string `json:"from"`
	To   string `json:"to"`
}

func (c metadataMigrateCommand) Run(ctx context.Context, a *app) error {
	p, err := c.places()
	if err != nil {
		return err
	}
	conn, err := connectTo(p.tree, c.Zookeeper)
	if err != nil {
		return err
	}
	defer conn.Close()
	cfg := controller.MigrateConfig{
		Data: p.dir, Address: p.tree, Conn: conn, Logger: zerolog.Nop(), Progress: a.migrationProgress(),
	}
	migrate := controller.MigrateToEmbedded
	if p.into {
		migrate = controller.MigrateToZooKeeper
	}
	done, err := migrate(ctx, cfg)
	var differs *zkmeta.DifferenceError
	if errors.As(err, &differs) {
		return no("%s; nothing was moved", differs)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(migration{Migrated: done, From: c.From, To: c.To})
	}
	a.printMigrated(p, done)
	return nil
}

func (a *app) printMigrated(p places, m controller.Migrated) {
	what := fmt.Sprintf("cluster %s: %s records, up to batch %d of epoch %d, were read back and compared; they are in", m.ClusterID, count(int64(m.Records)), m.Offset, m.Epoch)
	if m.Already {
		what = fmt.Sprintf("the metadata of cluster %s was moved before; it is in", m.ClusterID)
	}
	if p.into {
		fmt.Fprintf(a.Out, "%s %s\n", what, p.tree)
		fmt.Fprintf(a.Out, "next: start controllers with --metadata %s; the one on %s goes on with the log that it has\n", p.tree, p.dir)
		fmt.Fprintf(a.Out, "undo: stop all controllers, then shoal metadata migrate --from %s --to %s%s\n", p.tree, embeddedPrefix, p.dir)
		return
	}
	fmt.Fprintf(a.Out, "%s %s\n", what, p.dir)
	fmt.Fprintf(a.Out, "next: start one controller on %s, with --metadata %s; the tree at %s stays, marked as moved, and none can lead from it\n", p.dir, controller.Embedded, p.tree)
	fmt.Fprintf(a.Out, "undo: stop the controller, then shoal metadata migrate --from %s%s --to %s\n", embeddedPrefix, p.dir, p.tree)
}

// progressEvery is how often a long migration says how far it is.
const progressEvery = 2 * time.Second

// migrationProgress says it on standard error. A short migration says nothing.
func (a *app) migrationProgress() func(controller.MigrateStep, int, int) {
	last := a.now()
	return func(step controller.MigrateStep, done, total int) {
		if now := a.now(); now.Sub(last) >= progressEvery {
			last = now
			if total == 0 {
				fmt.Fprintf(a.Err, "%s …\n", step)
				return
			}
			fmt.Fprintf(a.Err, "%s: %s of %s records\n", step, count(int64(done)), count(int64(total)))
		}
	}
}

package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/zkmeta"
)

type metadataCommand struct {
	Log       metadataLog       `cmd:"" help:"The batches of the metadata log: what each of them changes."`
	Snapshots metadataSnapshots `cmd:"" help:"List the snapshots of the metadata."`
	Snapshot  metadataSnapshot  `cmd:"" help:"Have every controller and node make a snapshot now."`
	Dump      metadataDump      `cmd:"" help:"Print the records, one JSON object a line, in an order that stays: two dumps can be compared line by line."`
	Verify    metadataVerify    `cmd:"" help:"Read log and snapshots through, and tell all that is damaged and what to do about it."`
	Restore   metadataRestore   `cmd:"" help:"Make the data directory of an embedded controller that lost its own, from what nodes have."`

	Init    metadataInitCommand    `cmd:"" help:"Found a cluster in ZooKeeper, for controllers that are started with --metadata zookeeper://… afterwards."`
	Migrate metadataMigrateCommand `cmd:"" help:"Move the metadata of a cluster into ZooKeeper, or out of it again. No controller may run."`
}

type metadataInitCommand struct {
	Zookeeper cmdline.ZooKeeper `embed:"" prefix:"zookeeper-"`

	Address string `arg:"" help:"zookeeper://host:port,host:port/root; the root is made if it is not there." placeholder:"ADDRESS"`
}

func (c metadataInitCommand) Run(ctx context.Context, a *app) error {
	conn, err := connect(c.Address, c.Zookeeper)
	if err != nil {
		return err
	}
	defer conn.Close()
	cluster := uuid.New()
	if err := zkmeta.Found(ctx, conn, cluster); err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(map[string]string{"clusterId": cluster.String(), "metadata": c.Address})
	}
	fmt.Fprintf(a.Out, "cluster %s is founded at %s\n", cluster, c.Address)
	return nil
}

// connect begins a session with ZooKeeper.
func connect(address string, settings cmdline.ZooKeeper) (*zkmeta.Conn, error) {
	at, err := zkmeta.ParseAddress(address)
	if err != nil {
		return nil, usageError{err}
	}
	return connectTo(at, settings)
}

func connectTo(at zkmeta.Address, settings cmdline.ZooKeeper) (*zkmeta.Conn, error) {
	access, err := settings.Access()
	if err != nil {
		return nil, usageError{err}
	}
	conn, err := zkmeta.Connect(access.Conn(at, zerolog.Nop(), nil))
	if err != nil {
		return nil, usageError{err} // no server was asked yet
	}
	return conn, nil
}

// Command shoal is the operator's command line; `shoal up` runs a whole local
// cluster in one process. See internal/cli.
package main

import (
	"context"
	"os"

	"github.com/shoalstore/shoal/internal/cli"
	"github.com/shoalstore/shoal/internal/cmdline"
)

func main() {
	ctx, stop := cmdline.Signals(context.Background(), func() {})
	status := cli.Main(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(status)
}

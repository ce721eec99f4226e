// Command simulate runs seeds of the simulator (package sim). Start it with make
// sim, or with -seed to see one.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/shoalstore/shoal/internal/sim"
)

func main() {
	var o sim.Options
	flag.Int64Var(&o.First, "first", 1, "first seed")
	flag.IntVar(&o.Seeds, "seeds", 1000, "how many")
	seed := flag.Int64("seed", 0, "run this seed only, and print what happens with -v")
	flag.BoolVar(&o.Verbose, "v", false, "print the history of a seed")
	flag.BoolVar(&o.Shrink, "shrink", true, "look for a shorter schedule of a seed that fails")
	flag.BoolVar(&o.Stop, "stop", false, "stop at the first seed that fails")
	without := flag.String("without", "", "leave these faults out, comma-separated (as a failure prints it)")
	flag.Parse()
	if *seed != 0 {
		o.First, o.Seeds = *seed, 1
	}
	o.Without = sim.ParseFaults(*without)
	o.Out = os.Stdout
	if failed := sim.RunSeeds(o); failed > 0 {
		fmt.Fprintf(os.Stdout, "%d of %d seeds failed\n", failed, o.Seeds)
		os.Exit(1)
	}
}

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
	var err error
	if o.Without, err = sim.ParseFaults(*without); err != nil {
		fmt.Fprintln(os.Stderr, "-without:", err)
		os.Exit(2)
	}
	o.Out = os.Stdout
	if sim.RunSeeds(o) > 0 {
		os.Exit(1)
	}
}

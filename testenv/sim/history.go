package sim

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// historyOps is how much of a history porcupine gets: its effort grows fast.
	historyOps  = 80
	historyTime = time.Second / 2
)

// counting is one operation on the counter: it adds, or it sees a value.
type counting struct {
	read bool
	add  uint64
}

// checkLinearizable has porcupine look at the views of the counter, beside the exact check of every read at
// its index (client.go): it knows nothing of indexes, only of what clients saw and when.
func (c *cluster) checkLinearizable() {
	model := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, output any) (bool, any) {
			have, in := state.(uint64), input.(counting)
			if in.read {
				return output.(uint64) == have, have
			}
			return true, have + in.add
		},
	}
	var history []porcupine.Operation
	for _, o := range c.clients.all {
		if len(history) == historyOps { // reads that may have seen more are left out
			history = slices.DeleteFunc(history, func(p porcupine.Operation) bool {
				return p.Input.(counting).read && p.Return >= int64(o.began)
			})
			break
		}
		p := porcupine.Operation{ClientId: len(history), Call: int64(o.began), Return: int64(o.ended)}
		switch {
		case o.read && o.exact && o.outcome == acked && o.item == counter && o.user == "" && o.exists:
			p.Input, p.Output = counting{read: true}, o.views
		case !o.read && o.root == o && o.adds > 0 && o.known() != failed:
			p.Input, p.Output = counting{add: uint64(o.adds)}, uint64(0)
			for _, t := range o.tries {
				if t.outcome != acked { // it may have happened at any time, or never
					p.Return = math.MaxInt64
				}
			}
			if p.Return != math.MaxInt64 {
				for _, t := range o.tries {
					p.Return = max(p.Return, int64(t.ended))
				}
			}
		default:
			continue
		}
		history = append(history, p)
	}
	// A write of unknown outcome may be left out altogether: porcupine then puts it behind every read.
	switch porcupine.CheckOperationsTimeout(model, history, historyTime) {
	case porcupine.Illegal:
		c.violated("what clients saw of item 0 is not linearizable")
	case porcupine.Ok:
		c.sometimes("history linearizable")
	}
}

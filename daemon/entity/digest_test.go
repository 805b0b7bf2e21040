package entity_test

import (
	"testing"

	"github.com/tidaldb/tidal/daemon/entity"
)

// Every table of keys.go counts in a sum that has a name, but ranks.
func TestSumOf_CoversEveryTable(t *testing.T) {
	t.Parallel()
	for table := byte(1); table <= 0x0c; table++ {
		sum, ok := entity.SumOf([]byte{table, 0, 0, 0, 1, 'x'})
		former, _ := entity.FormerRankBounds()
		rank := entity.IsRank([]byte{table, 0}) || table == former[0]
		if ok == rank {
			t.Errorf("table %d: primary %t, rank %t", table, ok, rank)
		}
		if ok && (sum >= entity.Sums || entity.SumName(sum) == "") {
			t.Errorf("table %d counts in sum %d of %d, %q", table, sum, entity.Sums, entity.SumName(sum))
		}
	}
	if _, ok := entity.SumOf(nil); ok {
		t.Error("no key counts in a sum")
	}
}

// Two periods that are live together never share a sum.
func TestSumOfReceipts_TellsNeighboursApart(t *testing.T) {
	t.Parallel()
	for _, period := range []uint32{0, 1, 40_000, 1<<32 - 2} {
		a, _ := entity.SumOf(entity.AppendReceiptKey(nil, period, [16]byte{1}))
		b, _ := entity.SumOf(entity.AppendReceiptKey(nil, period+1, [16]byte{1}))
		if a == b || a != entity.SumOfReceipts(period) {
			t.Errorf("periods %d and %d count in sums %d and %d, the first in %d", period, period+1, a, b, entity.SumOfReceipts(period))
		}
	}
}

package apply

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// receipt is a receipt that is not in the store yet.
type receipt struct {
	period uint32
	entity.Receipt
}

// turn moves on to the period of an entry. Stamps never fall along a log; one that did would change
// nothing.
func (t *txn) turn(period uint32) {
	if period <= t.m.receipts.Period {
		return
	}
	t.counted = true
	t.digest.turn(t.m.receipts.Period, period)
	t.m.receipts.Advance(period)
	t.dropBefore = period - 1 // not below 0: period is above another
}

// recall returns the receipt of key, if it came before with the same body. It is denied if it came
// with another one, or did not come and there is no room for it.
func (t *txn) recall(key command.Key) (before *entity.Receipt, denied *command.Refusal, err error) {
	r, err := t.find(key.Hash)
	switch {
	case err != nil:
		return nil, nil, err
	case r != nil && r.Body != key.Body:
		return nil, &command.Refusal{Code: command.CodeKeyMismatch, Detail: fmt.Sprintf("the idempotency key was first used in entry %d, for something else", r.ID.Index)}, nil
	case r != nil:
		return r, nil, nil
	}
	if n := t.m.receipts.Now + t.m.receipts.Earlier; n >= uint64(t.m.MaxKeys) {
		return nil, &command.Refusal{Code: command.CodeTooManyKeys, Detail: fmt.Sprintf("%d idempotency keys are kept, which is the limit; they go after %s to twice that", n, entity.KeyPeriod)}, nil
	}
	return nil, nil, nil
}

// find returns the receipt under the hash of an idempotency key, or nil.
func (t *txn) find(hash [16]byte) (*entity.Receipt, error) {
	now := t.m.receipts
	if r, ok := t.receipts.get(hash); ok && r.period+1 >= now.Period {
		return &r.Receipt, nil
	}
	periods := []uint32{now.Period, now.Period - 1}
	counts := []uint64{now.Now, now.Earlier}
	for i, period := range periods {
		if counts[i] == 0 {
			continue
		}
		t.key = entity.AppendReceiptKey(t.key[:0], period, hash)
		record, ok, err := t.m.store.Get(t.key)
		if err != nil {
			return nil, err
		}
		if ok {
			r, err := entity.DecodeReceipt(record)
			return &r, err
		}
	}
	return nil, nil
}

// remember keeps what became of what key came with. Where a write and a record in it have the same
// key, that of the write stays.
func (t *txn) remember(key command.Key, r entity.Receipt) {
	r.Body = key.Body
	now := &t.m.receipts
	if have, ok := t.receipts.get(key.Hash); !ok || have.period != now.Period {
		now.Now++
		t.counted = true
	}
	t.receipts.set(key.Hash, &receipt{period: now.Period, Receipt: r})
}

// commitReceipts writes the receipts that are new and drops those of past periods, whole.
func (t *txn) commitReceipts() error {
	if !t.counted {
		return nil
	}
	if t.dropBefore > 0 {
		t.batch.DeleteRange(entity.ReceiptBounds(0, t.dropBefore))
	}
	for _, p := range t.receipts.pairs {
		if p.value.period < t.dropBefore {
			continue
		}
		t.key = entity.AppendReceiptKey(t.key[:0], p.value.period, p.key)
		t.value = p.value.Append(t.value[:0])
		t.put(t.key, t.value, state.Sum{}) // its key was looked for and not found
	}
	return t.putOver(entity.ReceiptsKey(), t.m.receipts.Encode())
}

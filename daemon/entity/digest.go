package entity

import "fmt"

// DigestVersion is the version of the list of sums below. Members compare digests of one version only,
// so a table may be added to the list, and the version raised, at any time.
const DigestVersion = 1

// The sums of a state's digest: one for each primary table, and two for receipts, which go by whole
// periods.
const (
	SumRoster = iota
	SumCollections
	SumItems
	SumRows
	SumEmbeddings
	SumHardNegs
	SumReceiptsEven // of the periods with even numbers, of which one is live
	SumReceiptsOdd
	SumReceiptCounts
	SumDelivered // operations of outboxes
	SumFeatures

	Sums // how many there are
)

// SumOf returns the sum that the pair under key counts in; ok is false for a derived pair.
func SumOf(key []byte) (sum int, ok bool) {
	if len(key) == 0 {
		return 0, false
	}
	switch key[0] {
	case tableRoster:
		return SumRoster, true
	case tableCollection:
		return SumCollections, true
	case tableItem:
		return SumItems, true
	case tableRow:
		return SumRows, true
	case tableEmbedding:
		return SumEmbeddings, true
	case tableHardNeg:
		return SumHardNegs, true
	case tableReceipt:
		if len(key) < receiptHeader {
			return SumReceiptsEven, true
		}
		return SumOfReceipts(uint32(key[receiptHeader-1])), true
	case tableReceipts:
		return SumReceiptCounts, true
	case tableDelivered:
		return SumDelivered, true
	case tableFeatures:
		return SumFeatures, true
	}
	return 0, false
}

// receiptHeader is the length of a receipt's key before the hash: the table and the period.
const receiptHeader = 1 + 4

// SumOfReceipts returns the sum of the receipts of a period.
func SumOfReceipts(period uint32) int { return SumReceiptsEven + int(period&1) }

// SumName says what a sum stands for.
func SumName(sum int) string {
	switch sum {
	case SumRoster:
		return "roster"
	case SumCollections:
		return "collections"
	case SumItems:
		return "items"
	case SumRows:
		return "rows"
	case SumEmbeddings:
		return "embeddings"
	case SumHardNegs:
		return "hard negatives"
	case SumReceiptsEven, SumReceiptsOdd:
		return "receipts"
	case SumReceiptCounts:
		return "counts of receipts"
	case SumDelivered:
		return "what outboxes delivered"
	case SumFeatures:
		return "features"
	}
	return fmt.Sprintf("sum %d", sum)
}

// IsRow reports whether key is that of a row, and returns what names the row.
func IsRow(key []byte) (c CollectionID, id []byte, ok bool) {
	const header = 1 + 4
	if len(key) <= header || key[0] != tableRow {
		return 0, nil, false
	}
	return CollectionID(uint32(key[1])<<24 | uint32(key[2])<<16 | uint32(key[3])<<8 | uint32(key[4])), key[header:], true
}

// IsRank reports whether key is that of a rank, which follows from a row.
func IsRank(key []byte) bool { return len(key) > 0 && key[0] == tableRank }

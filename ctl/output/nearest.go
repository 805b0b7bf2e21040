package output

import "strings"

// Nearest returns up to three of names that are close to s: for "did you mean". Order: closest
// first, then as given.
func Nearest(s string, names []string) []string {
	limit := max(2, len(s)/3)
	var found []string
	for dist := 0; dist <= limit && len(found) < 3; dist++ {
		for _, name := range names {
			if len(found) < 3 && distance(strings.ToLower(s), strings.ToLower(name)) == dist {
				found = append(found, name)
			}
		}
	}
	return found
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

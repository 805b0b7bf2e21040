package config

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes.
type size int64

// units are what a size may be written in, largest first.
func units() []struct {
	name  string
	bytes size
} {
	return []struct {
		name  string
		bytes size
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// parseSize reads a whole number with its unit; 0 needs none.
func parseSize(s string) (size, error) {
	if s == "0" {
		return 0, nil
	}
	for _, u := range units() {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/int64(u.bytes) {
			break
		}
		return size(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is no size: want a whole number with its unit, like 64KiB, 256MiB or 4GiB", s)
}

// String writes a size in the largest unit that divides it.
func (s size) String() string {
	for _, u := range units() {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return "0"
}

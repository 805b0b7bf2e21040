package apply

// overlay holds pairs that were changed and not yet written, in the order of their first change. The
// zero overlay is empty.
type overlay[K comparable, V any] struct {
	at    map[K]int // to the place in pairs
	pairs []pair[K, V]
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

func (o *overlay[K, V]) get(key K) (v V, ok bool) {
	i, ok := o.at[key]
	if ok {
		v = o.pairs[i].value
	}
	return v, ok
}

func (o *overlay[K, V]) set(key K, v V) {
	if i, ok := o.at[key]; ok {
		o.pairs[i].value = v
		return
	}
	if o.at == nil {
		o.at = map[K]int{}
	}
	o.at[key] = len(o.pairs)
	o.pairs = append(o.pairs, pair[K, V]{key, v})
}

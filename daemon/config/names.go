package config

// Names returns the names of the members that a topology file declares, in its order, or an
// *InvalidError that says why the file cannot be read.
func Names(path string) ([]string, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, &InvalidError{[]Problem{{File: path, Detail: err.Error()}}}
	}
	ps := &problems{file: path}
	var names []string
	for _, m := range decode(text, ps).members(ps) {
		names = append(names, m.Name)
	}
	if len(ps.all) > 0 {
		return nil, &InvalidError{ps.sorted()}
	}
	return names, nil
}

package apply

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// Features returns what the log of a group has made use of beyond the first release.
func Features(view *state.View) (ident.Capabilities, error) {
	record, ok, err := view.Get(entity.FeaturesKey())
	switch {
	case err != nil:
		return 0, fmt.Errorf("load features: %w", err)
	case !ok:
		return 0, nil
	}
	c, err := entity.DecodeFeatures(record)
	if err != nil {
		return 0, fmt.Errorf("load features: %w", err)
	}
	return c, nil
}

// understood refuses what this binary lacks: it must neither apply what follows nor serve what is there.
func understood(c ident.Capabilities) error {
	if missing := c &^ ident.Supported; missing != 0 {
		return &command.UnknownKindError{What: "capability", Number: uint64(missing)}
	}
	return nil
}

// feature takes note of what the log makes use of from here on.
func (t *txn) feature(c ident.Capabilities) error {
	if err := understood(c); err != nil {
		return err
	}
	if t.m.features.Has(c) {
		return nil
	}
	t.m.features |= c
	t.featured = true
	return nil
}

// putFeatures is the last part of a batch that made use of something new.
func (t *txn) putFeatures() error {
	if !t.featured {
		return nil
	}
	return t.putOver(entity.FeaturesKey(), entity.EncodeFeatures(t.m.features))
}

//go:build cgo && foundationdb

package main

import (
	"context"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/fairq/fairq/store/foundationdb"
)

func openFoundationDB(ctx context.Context, clusterFile string, o *options) (store, error) {
	if err := fdb.APIVersion(730); err != nil {
		return nil, err
	}
	db, err := fdb.OpenDatabase(clusterFile)
	if err != nil {
		return nil, err
	}
	settings := foundationdb.Options{History: o.history, KeepSchema: true}
	if o.prefix != "" {
		settings.Subspace = subspace.FromBytes([]byte(o.prefix))
	}
	return opened(foundationdb.Open(ctx, db, &settings))
}

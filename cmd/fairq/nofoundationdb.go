//go:build !cgo || !foundationdb

package main

import (
	"context"
	"errors"
)

func openFoundationDB(context.Context, string, *options) (store, error) {
	return nil, errors.New(
		"this program was built without FoundationDB's client library: it needs cgo, " +
			"and -tags foundationdb")
}

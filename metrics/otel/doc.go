// Package fairqotel exports the metrics of queues and pools by OpenTelemetry, and has traces go on
// from who puts a task to its handler. It needs the API of OpenTelemetry alone: which SDK there
// is, if any, is up to the program.
package fairqotel

const scope = "github.com/fairq/fairq/metrics/otel"

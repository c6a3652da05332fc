// Package fairqotel exports the metrics of queues and pools by OpenTelemetry, and continues traces
// from the put of a task to its handler. It needs only the API of OpenTelemetry; the program
// chooses the SDK, if any.
package fairqotel

const scope = "github.com/fairq/fairq/metrics/otel"

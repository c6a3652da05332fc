package metrics

// Of returns the metrics of a Stats.
func Of(stats any) []Metric { return of(stats, true) }

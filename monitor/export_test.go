package monitor

import "context"

// Look looks at a source, however long ago that was done last.
func Look(s *Source) error {
	_, err := s.of.look(context.Background())
	return err
}

var (
	KeyText = keyText
	Shown   = shown
)

func KeyOf[K comparable](text string) (K, bool) { return keyOf[K](text) }

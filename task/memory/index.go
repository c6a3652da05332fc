package memory

import (
	"iter"

	"github.com/fairq/fairq/internal/driver"
)

// index finds tasks by their ids. Tasks get ids in order, so the index is a map of blocks of
// neighbours. A block lasts while it has tasks.
type index struct {
	blocks      map[driver.ID]*block
	first, open *block // the blocks are linked in order; open is the last one
	found       *block // the block found last, because neighbours are settled one after the other
	spare       []*block
	peak        int // the greatest number of blocks
}

const (
	blockBits   = 6
	spareBlocks = maxSpare >> blockBits
)

type block struct {
	number     driver.ID
	used       int
	prev, next *block
	states     [driver.Held + 1]uint8 // the numbers of delayed, buried and held tasks
	items      [1 << blockBits]*item
}

// count counts a task that enters a state (1), or leaves it (-1). It does not count the states
// Ready and Taken, because Put, Take and Ack would have to touch the block once more.
func (b *block) count(s driver.State, n int) {
	if s != driver.Ready && s != driver.Taken {
		b.states[s] += uint8(n)
	}
}

// lacks reports whether the block has no task in that state. It is false for states without a
// count.
func (b *block) lacks(s driver.State) bool {
	return s != 0 && s != driver.Ready && s != driver.Taken && b.states[s] == 0
}

// add adds a task whose id is greater than all before.
func (x *index) add(it *item) {
	if x.open == nil || x.open.number != it.id>>blockBits {
		if x.open != nil && x.open.used == 0 {
			x.drop(x.open)
		}
		x.grow(it.id >> blockBits)
	}
	x.open.items[it.id&(1<<blockBits-1)] = it
	x.open.used++
	it.block = x.open
}

// grow adds a block.
func (x *index) grow(number driver.ID) {
	var b *block
	if last := len(x.spare) - 1; last < 0 {
		b = new(block)
	} else {
		b, x.spare[last] = x.spare[last], nil
		x.spare = x.spare[:last]
	}
	b.number, b.prev, b.next = number, x.open, nil
	if x.open == nil {
		x.first = b
	} else {
		x.open.next = b
	}
	x.open = b
	if x.blocks == nil {
		x.blocks = map[driver.ID]*block{}
	}
	x.blocks[number] = b
}

func (x *index) get(id driver.ID) *item {
	if x.found == nil || x.found.number != id>>blockBits {
		b := x.blocks[id>>blockBits]
		if b == nil {
			return nil
		}
		x.found = b
	}
	return x.found.items[id&(1<<blockBits-1)]
}

func (x *index) remove(it *item) {
	b := it.block
	b.items[it.id&(1<<blockBits-1)] = nil
	if b.used--; b.used == 0 && b != x.open {
		x.drop(b)
	}
}

// drop removes an empty block.
func (x *index) drop(b *block) {
	remove(&x.blocks, &x.peak, b.number)
	if b.prev == nil {
		x.first = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		x.open = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil // or a spare block would keep alive all blocks dropped after it
	if len(x.spare) < spareBlocks {
		x.spare = append(x.spare, b)
	}
}

// from returns the first block with that number or a greater one, nil if there is none.
func (x *index) from(number driver.ID) *block {
	if b := x.blocks[number]; b != nil {
		return b
	}
	b := x.first
	for b != nil && b.number < number {
		b = b.next
	}
	return b
}

// all iterates over the tasks in the order of their ids. The loop may remove any task.
func (x *index) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for b := x.first; b != nil; {
			number := b.number
			for _, it := range b.items {
				if it != nil && !yield(it) {
					return
				}
			}
			b = x.from(number + 1)
		}
	}
}

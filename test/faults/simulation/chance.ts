import { seededRandom } from '../fault-suite.ts';

/** What decides in a played world: the same seed decides the same. */
export interface Chance {
  happens(probability: number): boolean;
  /** A whole number, both ends included. */
  between(least: number, most: number): number;
  pick<Item>(items: readonly Item[]): Item;
  /** One of them, the more often the heavier it is. */
  weigh<Item>(items: readonly (readonly [weight: number, item: Item])[]): Item;
}

export function createChance(seed: number): Chance {
  const random = seededRandom(seed);
  const between = (least: number, most: number): number => least + Math.floor(random() * (most - least + 1));
  return {
    happens: (probability) => random() < probability,
    between,
    pick: (items) => items[between(0, items.length - 1)] as (typeof items)[number],
    weigh(items) {
      let left = random() * items.reduce((sum, [weight]) => sum + weight, 0);
      for (const [weight, item] of items) {
        left -= weight;
        if (left < 0) return item;
      }
      throw new Error('nothing to choose from');
    },
  };
}

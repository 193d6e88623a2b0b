import { Inbox, type Fetched } from './inbox.ts';
import { isMarked } from './comparison.ts';
import type { LaneState, Ports, RecordMark } from './ports.ts';

/**
 * What a lane accepts of the client's fetches. Records reach the inbox in order, from the offset that the lane asked
 * for, and only of the log that the ledger knows. So a recreated or shortened topic is noticed; take.ts and
 * comparison.ts then find where the log differs from what is stored.
 */
export class Intake {
  state: LaneState = 'taking';
  inbox = new Inbox(0);
  /**
   * Why the partition must be taken again. 'elsewhere': it was fetched from another offset than ours. 'another': another
   * record stands at the ledger's end. 'missing': no record stands there, so take.ts looks at earlier records that the
   * ledger knows (RecordMark in ports.ts).
   */
  retake: 'elsewhere' | 'another' | 'missing' | undefined;
  /** the answer to peek() */
  peeked: Fetched | undefined;
  /**
   * The offset that the next offer must be fetched from. An offer from another one comes if the log began again, if its
   * start moved, or if the fetch is older than a rejoin. While records are accepted and no retake is due: one after the
   * last offset that was fetched.
   */
  asked = 0;
  /** the ledger's last record; it must be met again before anything is accepted */
  awaited: RecordMark | undefined;
  readonly #ports: Pick<Ports, 'fetchFrom'>;

  constructor(ports: Pick<Ports, 'fetchFrom'>) {
    this.#ports = ports;
  }

  /** Accepts nothing until open() or peek(). */
  close(): void {
    this.state = 'taking';
    this.retake = undefined;
  }

  /** Accepts records from `next` on. Offsets below `low` are gone from Kafka. */
  open(next: number, low: number, expected: RecordMark | undefined): void {
    this.inbox = new Inbox(next);
    if (low > next) this.inbox.offer({ to: low - 1, records: [] });
    this.state = 'running';
    this.awaited = expected;
    this.#ask(expected === undefined ? this.inbox.end : expected.offset);
  }

  /** Drops what is held. */
  drop(): void {
    this.inbox = new Inbox(this.inbox.next);
  }

  /** Asks for what the log holds at this offset and after it, for a comparison only. */
  peek(at: number): void {
    this.state = 'comparing';
    this.peeked = undefined;
    this.#ask(at);
  }

  /** Takes what was fetched from the offset `at`, which may have no record. False if it is not wanted. */
  offer(fetched: Fetched & { readonly at: number }): boolean {
    const isWanted = this.state === 'running' || (this.state === 'comparing' && this.peeked === undefined);
    if (!isWanted || this.retake !== undefined) return false;
    if (fetched.at !== this.asked) {
      this.retake = 'elsewhere';
      return false;
    }
    if (this.state === 'comparing') {
      this.peeked = fetched;
      return true;
    }
    this.asked = fetched.to + 1;
    const expected = this.awaited;
    if (expected !== undefined) {
      const record = fetched.records.find((r) => r.offset === expected.offset);
      this.awaited = undefined;
      if (record === undefined || !isMarked(record, expected)) {
        this.retake = record === undefined ? 'missing' : 'another';
        return false;
      }
    }
    // offsets without a record go into the ledger with the next record
    if (fetched.records.length > 0) this.inbox.offer(fetched);
    return true;
  }

  #ask(offset: number): void {
    this.asked = offset;
    this.#ports.fetchFrom(offset);
  }
}

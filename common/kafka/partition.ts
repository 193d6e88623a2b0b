import kafkajs from 'kafkajs';
import type { Admin } from './client.ts';

// Questions to Kafka about partitions. A function throws KafkaUnavailable after the client's own retries, unless it says
// something else.

export interface Place {
  readonly topic: string;
  readonly partition: number;
}

/** Returns the place as one text, as a key of maps. */
export function keyOf(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

export class KafkaUnavailable extends Error {}

/** Returns the commit of a group. Undefined if there is none. */
export async function readCommit(
  admin: Admin,
  groupId: string,
  { topic, partition }: Place,
): Promise<{ offset: number; metadata: string } | undefined> {
  const [found] = await ofKafka(admin.fetchOffsets({ groupId, topics: [topic] }));
  const of = found?.partitions.find((p) => p.partition === partition);
  return of === undefined || Number(of.offset) < 0
    ? undefined
    : { offset: Number(of.offset), metadata: of.metadata ?? '' };
}

/** Returns the first offset, and the one after the last. */
export async function readWatermarks(
  admin: Admin,
  { topic, partition }: Place,
): Promise<{ low: number; high: number }> {
  const found = (await ofKafka(admin.fetchTopicOffsets(topic))).find((p) => p.partition === partition);
  if (found === undefined) throw new KafkaUnavailable(`partition ${partition} of ${topic} has no leader`);
  return { low: Number(found.low), high: Number(found.high) };
}

/**
 * Returns the offset after the last one of each partition. One question a topic; what cannot be read is left out.
 */
export async function readEnds<P extends Place>(admin: Admin, places: readonly P[]): Promise<Map<P, number>> {
  const ends = new Map<P, number>();
  for (const [topic, ofTopic] of Map.groupBy(places, (place) => place.topic)) {
    const found = await admin.fetchTopicOffsets(topic).catch(() => []);
    for (const place of ofTopic) {
      const end = found.find(({ partition }) => partition === place.partition);
      if (end !== undefined) ends.set(place, Number(end.high));
    }
  }
  return ends;
}

/**
 * Returns whether members of a consumer group have this partition, or may have it. A rebalancing group may have all
 * that its members ask for.
 */
export async function hasMembers(admin: Admin, group: string, { topic, partition }: Place): Promise<boolean> {
  const {
    groups: [found],
  } = await ofKafka(admin.describeGroups([group]));
  if (found === undefined) throw new KafkaUnavailable(`the consumer group ${group} cannot be described`);
  if (found.members.length === 0) return false;
  if (found.state !== 'Stable') return true;
  return found.members.some(({ memberAssignment }) => {
    const assigned =
      memberAssignment.length === 0 ? null : kafkajs.AssignerProtocol.MemberAssignment.decode(memberAssignment);
    return assigned?.assignment[topic]?.includes(partition) === true;
  });
}

async function ofKafka<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw new KafkaUnavailable(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/**
 * The sentences of explain.ts, in every language that it speaks. Each has the same placeholders in all languages, such
 * as {epsilon}. Where a sentence contains another one, the order of words fits that other one.
 * @module
 */

/** The languages of explanations, in the order of the sentences below. */
export const languages = ['en', 'de', 'fr', 'es'] as const;
export type Language = (typeof languages)[number];

/** A sentence, in the order of `languages`. */
type Sentence = readonly [en: string, de: string, fr: string, es: string];

/** @internal */
export const sentences = {
  intro: [
    'Your answer to "{name}" {sent}, at most {often}; what is sent is encrypted in layers and mixed with the reports ' +
      'of others by {relays}.',
    'Ihre Antwort auf „{name}“ {sent}, und zwar höchstens {often}. Was gesendet wird, ist mehrfach verschlüsselt und ' +
      'wird von {relays} mit den Berichten anderer vermischt.',
    'Votre réponse à «\u00a0{name}\u00a0» {sent}, au plus {often}. Ce qui est envoyé est chiffré en plusieurs couches et ' +
      "mélangé aux rapports d'autres personnes par {relays}.",
    'Su respuesta a «{name}» {sent}, como máximo {often}. Lo que se envía se cifra en varias capas y se mezcla con los ' +
      'informes de otras personas en {relays}.',
  ],
  randomized: [
    'is randomized on your device before anything is sent',
    'wird auf Ihrem Gerät zufällig verändert, bevor etwas gesendet wird',
    'est modifiée au hasard sur votre appareil avant tout envoi',
    'se altera al azar en su dispositivo antes de enviar nada',
  ],
  exact: [
    'is sent as it is, among random answers that every relay adds',
    'wird unverändert gesendet, zwischen zufälligen Antworten, die jedes Relay hinzufügt',
    'est envoyée telle quelle, parmi des réponses aléatoires que chaque relais ajoute',
    'se envía sin cambios, entre respuestas aleatorias que añade cada relé',
  ],
  once: ['once', 'einmal', 'une fois', 'una vez'],
  oncePerPeriod: ['once in each of {epochs} periods', 'einmal in jedem von {epochs} Zeiträumen',
    'une fois dans chacune des {epochs} périodes', 'una vez en cada uno de los {epochs} períodos'],
  relay: ['{n} relay', '{n} Relay', '{n} relais', '{n} relé'],
  relays: ['{n} relays', '{n} Relays', '{n} relais', '{n} relés'],
  device: ['{n} device or browser', '{n} Gerät oder Browser', '{n} appareil ou navigateur',
    '{n} dispositivo o navegador'],
  devices: ['{n} devices or browsers', '{n} Geräten oder Browsern', '{n} appareils ou navigateurs',
    '{n} dispositivos o navegadores'],
  day: ['{n} day', '{n} Tag', '{n} jour', '{n} día'],
  days: ['{n} days', '{n} Tagen', '{n} jours', '{n} días'],
  promise: [
    'Whatever is learned or published from a report would be nearly as likely had you given any other answer: no ' +
      'outcome more than {factor} times as likely, except with a probability of {delta} (differential privacy with ' +
      'epsilon {epsilon}, delta {delta}).',
    'Was immer aus einem Bericht gelernt oder veröffentlicht wird, wäre fast ebenso wahrscheinlich, wenn Sie irgendeine ' +
      'andere Antwort gegeben hätten: Kein Ergebnis ist mehr als {factor}-mal so wahrscheinlich, außer mit einer ' +
      'Wahrscheinlichkeit von {delta} (Differential Privacy mit Epsilon {epsilon}, Delta {delta}).',
    "Tout ce qui est appris ou publié à partir d'un rapport serait presque aussi probable si vous aviez donné n'importe " +
      "quelle autre réponse\u00a0: la probabilité d'un résultat n'est jamais multipliée par plus de {factor}, sauf avec " +
      'une probabilité de {delta} (confidentialité différentielle avec epsilon {epsilon}, delta {delta}).',
    'Todo lo que se averigua o publica a partir de un informe sería casi igual de probable si usted hubiera dado ' +
      'cualquier otra respuesta: la probabilidad de un resultado nunca se multiplica por más de {factor}, salvo con una ' +
      'probabilidad de {delta} (privacidad diferencial con épsilon {epsilon}, delta {delta}).',
  ],
  together: [
    ' All {epochs} periods together: epsilon {epsilon}, delta {delta}.',
    ' Alle {epochs} Zeiträume zusammen: Epsilon {epsilon}, Delta {delta}.',
    ' Les {epochs} périodes ensemble\u00a0: epsilon {epsilon}, delta {delta}.',
    ' Los {epochs} períodos juntos: épsilon {epsilon}, delta {delta}.',
  ],
  several: [
    'Somebody who reports from {devices} in one period is promised {promised} for all of that period together.',
    'Wer in einem Zeitraum von {devices} aus berichtet, dem wird für diesen Zeitraum insgesamt {promised} zugesichert.',
    "La promesse faite à une personne qui répond depuis {devices} pendant une période est, pour l'ensemble de cette " +
      'période\u00a0: {promised}.',
    'La promesa a quien responde desde {devices} en un período es, para todo ese período: {promised}.',
  ],
  figures: ['epsilon {epsilon}, delta {delta}', 'Epsilon {epsilon}, Delta {delta}', 'epsilon {epsilon}, delta {delta}',
    'épsilon {epsilon}, delta {delta}'],
  nothing: ['nothing', 'nichts', 'aucune', 'ninguna'],
  worstCase: [
    'If nobody else who reports is honest, {alone}. If all relays work with the verifier, {left}.',
    'Falls sonst niemand, der berichtet, ehrlich ist, {alone}. Falls alle Relays mit dem Auswerter zusammenarbeiten, ' +
      '{left}.',
    "Si aucune autre personne qui répond n'est honnête, {alone}. Si tous les relais coopèrent avec le vérificateur, " +
      '{left}.',
    'Si nadie más de quienes responden es honesto, {alone}. Si todos los relés colaboran con el verificador, {left}.',
  ],
  holds: ['the guarantee still holds', 'gilt die Zusicherung weiterhin', 'la garantie tient toujours',
    'la garantía sigue vigente'],
  noneLeft: ['no protection remains', 'bleibt kein Schutz', 'il ne reste aucune protection',
    'no queda ninguna protección'],
  epsilonLeft: ['epsilon {epsilon} remains', 'bleibt Epsilon {epsilon}', 'il reste epsilon {epsilon}',
    'queda épsilon {epsilon}'],
  local: [
    ' That is what the randomization alone gives: no message is more than {factor} times as likely for one answer as ' +
      'for another.',
    ' Das leistet die zufällige Veränderung allein: Keine Nachricht ist bei einer Antwort mehr als {factor}-mal so ' +
      'wahrscheinlich wie bei einer anderen.',
    " C'est ce que donne à elle seule la modification au hasard\u00a0: d'une réponse à une autre, la probabilité d'un " +
      "message n'est jamais multipliée par plus de {factor}.",
    ' Es lo que da por sí sola la alteración al azar: de una respuesta a otra, la probabilidad de un mensaje nunca se ' +
      'multiplica por más de {factor}.',
  ],
  amplified: [
    'In a batch in which {least} of {batch} participants are honest, their randomized answers hide yours besides, and ' +
      'epsilon can be less than {epsilon}: the published reports say how much.',
    'In einer Gruppe, in der {least} von {batch} Teilnehmenden ehrlich sind, verbergen deren zufällig veränderte ' +
      'Antworten die Ihre zusätzlich, und Epsilon kann kleiner als {epsilon} sein: Die veröffentlichten Auswertungen ' +
      'sagen, um wie viel.',
    'Dans un lot où {least} des {batch} participants sont honnêtes, leurs réponses modifiées au hasard cachent en outre ' +
      'la vôtre, et epsilon peut être inférieur à {epsilon}\u00a0: les rapports publiés disent de combien.',
    'En un lote en el que {least} de {batch} participantes son honestos, sus respuestas alteradas al azar ocultan además ' +
      'la suya, y épsilon puede ser menor que {epsilon}: los informes publicados dicen cuánto.',
  ],
  trust: [
    'Your device has checked all that a device can check. It takes on trust:',
    'Ihr Gerät hat alles geprüft, was ein Gerät prüfen kann. Es vertraut darauf:',
    "Votre appareil a vérifié tout ce qu'un appareil peut vérifier. Il suppose\u00a0:",
    'Su dispositivo ha comprobado todo lo que un dispositivo puede comprobar. Da por supuesto:',
  ],
  checkedQuestion: [
    'that the question is the one that its owner signed',
    'dass die Frage diejenige ist, die ihr Eigentümer signiert hat',
    'que la question est celle que son propriétaire a signée',
    'que la pregunta es la que firmó su propietario',
  ],
  checkedKeys: [
    'that every party uses the keys that the owner signed, one per epoch for all clients',
    'dass jede Partei die Schlüssel verwendet, die der Eigentümer signiert hat, je Zeitraum einen für alle',
    'que chaque partie utilise les clés que le propriétaire a signées, une par période pour tous',
    'que cada parte usa las claves que firmó el propietario, una por período para todos',
  ],
  checkedPromise: [
    'that the parameters of the randomization give the promise, by a computation of its own',
    'dass die Parameter der zufälligen Veränderung die Zusicherung ergeben, durch eine eigene Berechnung',
    'que les paramètres de la modification au hasard donnent la promesse, par son propre calcul',
    'que los parámetros de la alteración al azar dan la promesa, mediante un cálculo propio',
  ],
  checkedBudget: [
    'that all reports at this origin from this browser together keep {budget}',
    'dass alle Berichte dieses Browsers unter dieser Adresse der Website zusammen diese Grenze einhalten: {budget}',
    'que tous les rapports de ce navigateur à cette adresse du site respectent ensemble cette limite\u00a0: {budget}',
    'que todos los informes de este navegador en esta dirección del sitio respetan juntos este límite: {budget}',
  ],
  epsilonLimit: ['epsilon {epsilon}', 'Epsilon {epsilon}', 'epsilon {epsilon}', 'épsilon {epsilon}'],
  noEpsilonLimit: ['no limit on epsilon', 'Epsilon ohne Grenze', 'epsilon sans limite', 'épsilon sin límite'],
  deltaLimit: ['{loss}, delta {delta}', '{loss}, Delta {delta}', '{loss}, delta {delta}', '{loss}, delta {delta}'],
  noDeltaLimit: ['{loss}, beside a delta without a limit', '{loss}, Delta ohne Grenze', '{loss}, delta sans limite',
    '{loss}, delta sin límite'],
  always: ['{most}, for all time', '{most}, für immer', '{most}, pour toujours', '{most}, para siempre'],
  everyWindow: ['{most}, in every stretch of {days}', '{most}, in jedem Abschnitt von {days}',
    '{most}, sur toute durée de {days}', '{most}, en cada tramo de {days}'],
  honestClients: [
    'that {least} of the {batch} participants in each batch are real and honest',
    'dass {least} der {batch} Teilnehmenden jeder Gruppe echt und ehrlich sind',
    'que {least} des {batch} participants de chaque lot sont réels et honnêtes',
    'que {least} de los {batch} participantes de cada lote son reales y honestos',
  ],
  firstRelay: [
    'that the first relay does not work with the verifier',
    'dass das erste Relay nicht mit dem Auswerter zusammenarbeitet',
    'que le premier relais ne coopère pas avec le vérificateur',
    'que el primer relé no colabora con el verificador',
  ],
  onlyRelay: [
    'that the only relay does not work with the verifier',
    'dass das einzige Relay nicht mit dem Auswerter zusammenarbeitet',
    "que l'unique relais ne coopère pas avec le vérificateur",
    'que el único relé no colabora con el verificador',
  ],
  anyRelay: [
    'that at least one of the {relays} relays does not work with the verifier',
    'dass mindestens eines der {relays} Relays nicht mit dem Auswerter zusammenarbeitet',
    "qu'au moins un des {relays} relais ne coopère pas avec le vérificateur",
    'que al menos uno de los {relays} relés no colabora con el verificador',
  ],
  addsNoise: [
    '{relay}, and adds the random answers it should',
    '{relay} und die zufälligen Antworten hinzufügt, die es hinzufügen soll',
    "{relay} et ajoute les réponses aléatoires qu'il doit ajouter",
    '{relay} y añade las respuestas aleatorias que debe añadir',
  ],
  participation: [
    'that it may be known that you take part: the first relay sees your network address and when you report, but not ' +
      'what',
    'dass bekannt werden darf, dass Sie teilnehmen: Das erste Relay sieht Ihre Netzwerkadresse und wann Sie berichten, ' +
      'aber nicht, was',
    "que l'on peut savoir que vous participez\u00a0: le premier relais voit votre adresse réseau et le moment de votre " +
      'réponse, mais pas la réponse',
    'que se puede saber que usted participa: el primer relé ve su dirección de red y cuándo responde, pero no qué',
  ],
  noFlooding: [
    'that nobody fills a batch with participants of their own around one client (an n-1 attack): {left}',
    'dass niemand eine Gruppe um eine einzelne Person herum mit eigenen Teilnehmenden füllt (ein n-1-Angriff): {left}',
    "que personne ne remplit un lot de ses propres participants autour d'une seule personne (une attaque n-1)\u00a0: {left}",
    'que nadie llena un lote con participantes propios alrededor de una sola persona (un ataque n-1): {left}',
  ],
  clientLosesAll: [
    'nothing protects that client then',
    'Nichts schützt dann diese Person',
    'rien ne protège alors cette personne',
    'nada protege entonces a esa persona',
  ],
  clientKeeps: [
    'that client then keeps epsilon {epsilon}',
    'Dieser Person bleibt dann Epsilon {epsilon}',
    'cette personne garde alors epsilon {epsilon}',
    'esa persona conserva entonces épsilon {epsilon}',
  ],
  wholeClients: [
    'that the first relay leaves all messages of one client in one batch: the proof needs it, and no later relay can ' +
      'see it',
    'dass das erste Relay alle Nachrichten einer Person in derselben Gruppe lässt: Der Beweis setzt das voraus, und kein ' +
      'späteres Relay kann es sehen',
    "que le premier relais laisse tous les messages d'une personne dans un même lot\u00a0: la preuve l'exige, et aucun " +
      'relais suivant ne peut le voir',
    'que el primer relé deja todos los mensajes de una persona en un mismo lote: la demostración lo exige, y ningún relé ' +
      'posterior puede verlo',
  ],
  issuer: [
    'that the issuer of tokens gives them to real participants only, and works with neither the owner of the question ' +
      'nor the verifier',
    'dass der Aussteller der Token sie nur echten Teilnehmenden gibt und weder mit dem Eigentümer der Frage noch mit dem ' +
      'Auswerter zusammenarbeitet',
    "que l'émetteur des jetons ne les donne qu'à de vrais participants, et ne coopère ni avec le propriétaire de la " +
      'question ni avec le vérificateur',
    'que el emisor de los tokens solo los da a participantes reales, y no colabora ni con el propietario de la pregunta ' +
      'ni con el verificador',
  ],
  addresses: [
    'that participants are real: they are counted by network address, which does not stop whoever has many addresses',
    'dass die Teilnehmenden echt sind: Sie werden nach Netzwerkadressen gezählt, was niemanden aufhält, der viele Adressen ' +
      'hat',
    "que les participants sont réels\u00a0: ils sont comptés par adresse réseau, ce qui n'arrête pas celui qui en a beaucoup",
    'que los participantes son reales: se cuentan por dirección de red, lo que no detiene a quien tiene muchas',
  ],
  origins: [
    'that you report at one address of this site only: what you report at another one, such as www. beside shop., or ' +
      'inside a page of another site, is counted apart, and each count has the whole budget',
    'dass Sie nur unter einer Adresse dieser Website berichten: Was Sie unter einer anderen berichten, etwa www. neben ' +
      'shop., oder innerhalb der Seite einer anderen Website, wird getrennt gezählt, und jede Zählung hat das ganze Budget',
    "que vous ne répondez qu'à une seule adresse de ce site\u00a0: ce que vous envoyez à une autre, comme www. à côté de " +
      "shop., ou dans la page d'un autre site, est compté à part, et chaque compte dispose de tout le budget",
    'que usted responde solo en una dirección de este sitio: lo que responde en otra, como www. junto a shop., o dentro ' +
      'de la página de otro sitio, se cuenta aparte, y cada cuenta dispone de todo el presupuesto',
  ],
  page: [
    'that no other script of this page interferes: the page itself decides whether the budget admits a report, as its ' +
      'author gave a store of its own or the browser started no worker',
    'dass kein anderes Skript dieser Seite eingreift: Die Seite selbst entscheidet, ob das Budget einen Bericht zulässt, ' +
      'weil ihr Autor einen eigenen Speicher angegeben oder der Browser keinen Worker gestartet hat',
    "qu'aucun autre script de cette page n'intervient\u00a0: la page décide elle-même si le budget admet un rapport, car " +
      "son auteur a fourni son propre stockage ou le navigateur n'a pas démarré de worker",
    'que ningún otro script de esta página interfiere: la propia página decide si el presupuesto admite un informe, ' +
      'porque su autor dio un almacén propio o el navegador no inició ningún worker',
  ],
  storage: [
    "that this browser keeps this site's storage: who clears it, or uses another browser or device, is counted anew, " +
      'and Safari clears it after seven days without a visit',
    'dass dieser Browser den Speicher dieser Website behält: Wer ihn löscht oder einen anderen Browser oder ein anderes ' +
      'Gerät benutzt, wird neu gezählt, und Safari löscht ihn nach sieben Tagen ohne Besuch',
    "que ce navigateur conserve le stockage de ce site\u00a0: celui qui l'efface, ou utilise un autre navigateur ou " +
      "appareil, est compté à nouveau, et Safari l'efface après sept jours sans visite",
    'que este navegador conserva el almacenamiento de este sitio: quien lo borra, o usa otro navegador o dispositivo, se ' +
      'cuenta de nuevo, y Safari lo borra tras siete días sin visitas',
  ],
  roomAgain: ['; after {days} there is room again', '; nach {days} ist wieder Platz',
    "\u00a0; après {days}, il y a de nouveau de la place", '; tras {days} vuelve a haber espacio'],
} as const satisfies Record<string, Sentence>;

/** @internal */
export type SentenceName = keyof typeof sentences;

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
    'Your answer to "{name}" {sent}. It is sent at most {often}. What is sent is encrypted in layers and mixed with ' +
      'the reports of others by {relays}.',
    'Ihre Antwort auf „{name}“ {sent}. Sie wird höchstens {often} gesendet. Was gesendet wird, ist mehrfach ' +
      'verschlüsselt und wird von {relays} mit den Berichten anderer vermischt.',
    'Votre réponse à «\u00a0{name}\u00a0» {sent}. Elle est envoyée au plus {often}. Ce qui est envoyé est chiffré en ' +
      "plusieurs couches et mélangé aux rapports d'autres personnes par {relays}.",
    'Su respuesta a «{name}» {sent}. Se envía como máximo {often}. Lo que se envía se cifra en varias capas y es ' +
      'mezclado con los informes de otras personas por {relays}.',
  ],
  randomized: [
    'is randomized on your device before anything is sent',
    'wird auf Ihrem Gerät nach dem Zufallsprinzip verändert, bevor etwas gesendet wird',
    'est modifiée aléatoirement sur votre appareil avant tout envoi',
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
    'Whatever is learned or published from a report: no outcome is more than {factor} times as likely with your ' +
      'answer as with any other, except with a probability of {delta} (differential privacy with epsilon {epsilon}, ' +
      'delta {delta}).',
    'Was immer aus einem Bericht erfahren oder veröffentlicht wird: Kein Ergebnis ist mit Ihrer Antwort mehr als ' +
      '{factor}-mal so wahrscheinlich wie mit irgendeiner anderen, außer mit einer Wahrscheinlichkeit von {delta} ' +
      '(Differential Privacy mit Epsilon {epsilon}, Delta {delta}).',
    "Par rapport à toute autre réponse que vous auriez pu donner, la probabilité d'un résultat, appris ou publié à " +
      "partir d'un rapport, n'est pas multipliée par plus de {factor}, sauf avec une probabilité de {delta} " +
      '(confidentialité différentielle avec epsilon {epsilon}, delta {delta}).',
    'Frente a cualquier otra respuesta que usted hubiera podido dar, la probabilidad de un resultado, averiguado o ' +
      'publicado a partir de un informe, no se multiplica por más de {factor}, salvo con una probabilidad de {delta} ' +
      '(privacidad diferencial con épsilon {epsilon}, delta {delta}).',
  ],
  together: [
    ' All {epochs} periods together: epsilon {epsilon}, delta {delta}.',
    ' Alle {epochs} Zeiträume zusammen: Epsilon {epsilon}, Delta {delta}.',
    ' Les {epochs} périodes ensemble\u00a0: epsilon {epsilon}, delta {delta}.',
    ' Los {epochs} períodos juntos: épsilon {epsilon}, delta {delta}.',
  ],
  capped: [
    ' This browser reports at most {reports} times in them.',
    ' Dieser Browser antwortet darin höchstens {reports}-mal.',
    ' Ce navigateur y répond au plus {reports} fois.',
    ' Este navegador responde en ellos como máximo {reports} veces.',
  ],
  paced: [
    ' It spreads them: at most {reports} in every {window} periods, counted from a random one.',
    ' Er verteilt sie: höchstens {reports} in je {window} Zeiträumen, ab einem zufälligen gezählt.',
    ' Il les répartit\u00a0: au plus {reports} toutes les {window} périodes, comptées à partir d’une période au hasard.',
    ' Los reparte: como máximo {reports} cada {window} períodos, contados desde uno al azar.',
  ],
  rare: [
    " In any {window} consecutive periods, at most {most} of this browser's reports say that something rare " +
      'happened. All others say that nothing did.',
    ' In {window} aufeinanderfolgenden Zeiträumen melden höchstens {most} der Berichte dieses Browsers ein seltenes ' +
      'Ereignis. Alle anderen melden keines.',
    ' Sur {window} périodes de suite, au plus {most} des rapports de ce navigateur signalent un événement rare. Tous ' +
      "les autres n'en signalent aucun.",
    ' En {window} períodos seguidos, como máximo {most} de los informes de este navegador comunican un suceso ' +
      'raro. Los demás no comunican ninguno.',
  ],
  several: [
    'Somebody who reports from {devices} in one period is promised {promised} for all of that period together.',
    'Wer in einem Zeitraum von {devices} aus antwortet, dem wird für diesen Zeitraum insgesamt {promised} zugesichert.',
    "Voici ce qui est promis à une personne qui répond depuis {devices} pendant une période, pour l'ensemble de " +
      'cette période\u00a0: {promised}.',
    'Esto es lo que se promete a quien responde desde {devices} en un período, para todo ese período: {promised}.',
  ],
  figures: ['epsilon {epsilon}, delta {delta}', 'Epsilon {epsilon}, Delta {delta}', 'epsilon {epsilon}, delta {delta}',
    'épsilon {epsilon}, delta {delta}'],
  nothing: ['nothing', 'nichts', 'rien', 'nada'],
  worstCase: [
    'If nobody else who reports is honest, {alone}. If all relays collude with the verifier, {left}.',
    'Falls sonst niemand, der antwortet, ehrlich ist, {alone}. Falls sich alle Relays heimlich mit dem Auswerter ' +
      'absprechen, {left}.',
    "Si aucune autre personne qui répond n'est honnête, {alone}. Si tous les relais sont de connivence avec le " +
      'vérificateur, {left}.',
    'Si nadie más de quienes responden es honesto, {alone}. Si todos los relés actúan en connivencia con el ' +
      'verificador, {left}.',
  ],
  holds: ['the guarantee still holds', 'gilt die Zusicherung weiterhin', 'la garantie tient toujours',
    'la garantía sigue vigente'],
  noneLeft: ['no protection remains', 'bleibt kein Schutz', 'il ne reste aucune protection',
    'no queda ninguna protección'],
  epsilonLeft: [
    'only a promise with epsilon {epsilon} remains',
    'bleibt nur eine Zusicherung mit Epsilon {epsilon}',
    "il ne reste qu'une promesse avec epsilon {epsilon}",
    'solo queda una promesa con épsilon {epsilon}',
  ],
  local: [
    ' That is what the randomization alone gives: no message is more than {factor} times as likely for one answer as ' +
      'for another.',
    ' Das leistet die Veränderung nach dem Zufallsprinzip allein: Keine Nachricht ist bei einer Antwort mehr als ' +
      '{factor}-mal so wahrscheinlich wie bei einer anderen.',
    " C'est ce que donne à elle seule la modification aléatoire\u00a0: d'une réponse à une autre, la probabilité " +
      "d'un message n'est pas multipliée par plus de {factor}.",
    ' Es lo que da por sí sola la alteración al azar: de una respuesta a otra, la probabilidad de un mensaje no se ' +
      'multiplica por más de {factor}.',
  ],
  amplified: [
    'In a batch in which at least {least} of {batch} participants are honest, their randomized answers hide yours ' +
      'besides, and epsilon can be less than {epsilon}: the published results give its value.',
    'In einer Gruppe, in der mindestens {least} von {batch} Teilnehmenden ehrlich sind, verbergen deren nach dem ' +
      'Zufallsprinzip veränderte Antworten die Ihre zusätzlich, und Epsilon kann kleiner als {epsilon} sein: Die ' +
      'veröffentlichten Auswertungen nennen den Wert.',
    'Dans un lot où au moins {least} des {batch} participants sont honnêtes, leurs réponses modifiées aléatoirement ' +
      'cachent en outre la vôtre, et epsilon peut être inférieur à {epsilon}\u00a0: les résultats publiés en donnent ' +
      'la valeur.',
    'En un lote en el que al menos {least} de {batch} participantes son honestos, las respuestas de estos, alteradas ' +
      'al azar, ocultan además la de usted, y épsilon puede ser menor que {epsilon}: los resultados publicados dan ' +
      'su valor.',
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
    'that every party uses the keys that the owner signed, one per period, the same for all participants',
    'dass jede Partei die Schlüssel verwendet, die der Eigentümer signiert hat, je Zeitraum einen, denselben für ' +
      'alle Teilnehmenden',
    'que chaque partie utilise les clés que le propriétaire a signées, une par période, la même pour tous les ' +
      'participants',
    'que cada parte usa las claves que firmó el propietario, una por período, la misma para todos los participantes',
  ],
  checkedPromise: [
    'that the parameters of the randomization give the promise, by a computation of its own',
    'dass die Parameter der Veränderung nach dem Zufallsprinzip die Zusicherung ergeben, durch eine eigene Berechnung',
    'que les paramètres de la modification aléatoire donnent la promesse, par son propre calcul',
    'que los parámetros de la alteración al azar dan la promesa, mediante un cálculo propio',
  ],
  spends: [
    'A visitor who answers as often as possible, {reports} times in {time}, spends epsilon {spent} of {limit}.',
    'Wer so oft wie möglich antwortet, {reports}-mal in {time}, verbraucht Epsilon {spent} von {limit}.',
    'Une personne qui répond aussi souvent que possible, {reports} fois en {time}, dépense epsilon {spent} sur {limit}.',
    'Quien responde tantas veces como es posible, {reports} veces en {time}, gasta épsilon {spent} de {limit}.',
  ],
  checkedBudget: [
    'that all reports at this origin from this browser together stay within this limit: {budget}',
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
  everyWindow: ['{most}, in every stretch of {days}', '{most}, in jeder beliebigen Zeitspanne von {days}',
    '{most}, sur toute durée de {days}', '{most}, en cualquier intervalo de {days}'],
  honestClients: [
    'that at least {least} of the {batch} participants in each batch are real and honest',
    'dass mindestens {least} der {batch} Teilnehmenden jeder Gruppe echt und ehrlich sind',
    "qu'au moins {least} des {batch} participants de chaque lot sont réels et honnêtes",
    'que al menos {least} de los {batch} participantes de cada lote son reales y honestos',
  ],
  firstRelay: [
    'that the first relay does not collude with the verifier',
    'dass sich das erste Relay nicht heimlich mit dem Auswerter abspricht',
    "que le premier relais n'est pas de connivence avec le vérificateur",
    'que el primer relé no actúa en connivencia con el verificador',
  ],
  onlyRelay: [
    'that the only relay does not collude with the verifier',
    'dass sich das einzige Relay nicht heimlich mit dem Auswerter abspricht',
    "que l'unique relais n'est pas de connivence avec le vérificateur",
    'que el único relé no actúa en connivencia con el verificador',
  ],
  anyRelay: [
    'that at least one of the {relays} relays does not collude with the verifier',
    'dass sich mindestens eines der {relays} Relays nicht heimlich mit dem Auswerter abspricht',
    "qu'au moins un des {relays} relais n'est pas de connivence avec le vérificateur",
    'que al menos uno de los {relays} relés no actúa en connivencia con el verificador',
  ],
  addsNoise: [
    '{relay}, and adds the random answers it should',
    '{relay} und die zufälligen Antworten hinzufügt, die es hinzufügen soll',
    "{relay} et ajoute les réponses aléatoires qu'il doit ajouter",
    '{relay} y añade las respuestas aleatorias que debe añadir',
  ],
  participation: [
    'that you accept that it may become known that you take part: the first relay sees your network address and when ' +
      'you report, but not what',
    'dass Sie hinnehmen, dass Ihre Teilnahme bekannt wird: Das erste Relay sieht Ihre Netzwerkadresse und wann Sie ' +
      'antworten, aber nicht, was',
    "que vous acceptez que l'on sache que vous participez\u00a0: le premier relais voit votre adresse réseau et le " +
      'moment de votre réponse, mais pas la réponse',
    'que usted acepta que se sepa que participa: el primer relé ve su dirección de red y cuándo responde, pero no qué',
  ],
  noFlooding: [
    'that nobody fills a batch with participants of their own around one client (an n-1 attack): {left}',
    'dass niemand eine Gruppe um einen einzelnen Teilnehmenden herum mit eigenen Teilnehmenden füllt (ein ' +
      'n-1-Angriff): {left}',
    "que personne ne remplit un lot de ses propres participants autour d'un seul participant (une attaque " +
      'n-1)\u00a0: {left}',
    'que nadie llena un lote con participantes propios alrededor de un solo participante (un ataque n-1): {left}',
  ],
  clientLosesAll: [
    'otherwise nothing protects that client',
    'Andernfalls schützt nichts diesen Teilnehmenden',
    'sinon, rien ne protège ce participant',
    'de lo contrario, nada protege a ese participante',
  ],
  clientKeeps: [
    'otherwise that client keeps only a promise with epsilon {epsilon}',
    'Andernfalls bleibt diesem Teilnehmenden nur eine Zusicherung mit Epsilon {epsilon}',
    "sinon, ce participant ne garde qu'une promesse avec epsilon {epsilon}",
    'de lo contrario, ese participante solo conserva una promesa con épsilon {epsilon}',
  ],
  wholeClients: [
    'that the first relay leaves all messages of one client in one batch: the proof needs it, and no later relay can ' +
      'see it',
    'dass das erste Relay alle Nachrichten eines Teilnehmenden in derselben Gruppe lässt: Der Beweis setzt das ' +
      'voraus, und kein späteres Relay kann es sehen',
    "que le premier relais laisse tous les messages d'un participant dans un même lot\u00a0: la preuve l'exige, et " +
      'aucun relais suivant ne peut le voir',
    'que el primer relé deja todos los mensajes de un participante en un mismo lote: la demostración lo exige, y ' +
      'ningún relé posterior puede verlo',
  ],
  issuer: [
    'that the issuer of tokens gives them to real participants only, and colludes with neither the owner of the ' +
      'question nor the verifier',
    'dass der Aussteller der Token sie nur echten Teilnehmenden gibt und sich weder mit dem Eigentümer der Frage ' +
      'noch mit dem Auswerter heimlich abspricht',
    "que l'émetteur des jetons ne les donne qu'à de vrais participants, et n'est de connivence ni avec le " +
      'propriétaire de la question ni avec le vérificateur',
    'que el emisor de los tokens solo los da a participantes reales, y no actúa en connivencia ni con el propietario ' +
      'de la pregunta ni con el verificador',
  ],
  addresses: [
    'that participants are real: they are counted by network address, which does not stop whoever has many addresses',
    'dass die Teilnehmenden echt sind: Gezählt werden sie nach Netzwerkadressen, was niemanden aufhält, der viele ' +
      'Adressen hat',
    "que les participants sont réels\u00a0: ils sont comptés par adresse réseau, ce qui n'arrête pas celui qui " +
      'dispose de nombreuses adresses',
    'que los participantes son reales: se cuentan por dirección de red, lo que no detiene a quien tiene muchas ' +
      'direcciones',
  ],
  origins: [
    'that you report at one address of this site only: what you report at another one, such as www. beside shop., or ' +
      'inside a page of another site, is counted apart, and each count has the whole budget',
    'dass Sie nur unter einer Adresse dieser Website antworten: Was Sie unter einer anderen antworten, etwa www. ' +
      'neben shop., oder innerhalb der Seite einer anderen Website, wird getrennt gezählt, und jede Zählung hat das ' +
      'ganze Budget',
    "que vous ne répondez qu'à une seule adresse de ce site\u00a0: ce que vous envoyez à une autre, comme www. à " +
      "côté de shop., ou dans la page d'un autre site, est compté à part, et chaque décompte dispose de tout le budget",
    'que usted responde solo en una dirección de este sitio: lo que responde en otra, como www. junto a shop., o ' +
      'dentro de la página de otro sitio, se cuenta aparte, y cada recuento dispone de todo el presupuesto',
  ],
  page: [
    'that no other script of this page interferes: the page itself decides whether the budget admits a report, as ' +
      'its author gave a store of its own or the browser started no worker',
    'dass kein anderes Skript dieser Seite eingreift: Die Seite selbst entscheidet, ob das Budget einen Bericht ' +
      'zulässt, weil ihr Autor einen eigenen Speicher angegeben oder der Browser keinen Worker gestartet hat',
    "qu'aucun autre script de cette page n'intervient\u00a0: la page décide elle-même si le budget admet un rapport, " +
      "car son auteur a fourni son propre stockage ou le navigateur n'a pas démarré de worker",
    'que ningún otro script de esta página interfiere: la propia página decide si el presupuesto admite un informe, ' +
      'porque su autor dio un almacén propio o el navegador no inició ningún worker',
  ],
  storage: [
    "that this browser keeps this site's storage: who clears it, or uses another browser or device, is counted anew, " +
      'and Safari clears it after seven days without a visit',
    'dass dieser Browser den Speicher dieser Website behält: Wer ihn löscht oder einen anderen Browser oder ein ' +
      'anderes Gerät benutzt, wird neu gezählt, und Safari löscht ihn nach sieben Tagen ohne Besuch',
    "que ce navigateur conserve le stockage de ce site\u00a0: celui qui l'efface, ou utilise un autre navigateur ou " +
      "appareil, est compté comme un nouveau participant, et Safari l'efface après sept jours sans visite",
    'que este navegador conserva el almacenamiento de este sitio: quien lo borra, o usa otro navegador o ' +
      'dispositivo, se cuenta como un participante nuevo, y Safari lo borra tras siete días sin visitas',
  ],
  roomAgain: ['; after {days} the budget has room again', '; nach {days} ist im Budget wieder Platz',
    '\u00a0; après {days}, le budget a de nouveau de la place',
    '; tras {days} vuelve a haber margen en el presupuesto'],
} as const satisfies Record<string, Sentence>;

/** @internal */
export type SentenceName = keyof typeof sentences;
